"""How long a round trip takes: pings, their answers, and which answers tell of the link and which of its queue."""

from __future__ import annotations

from inference_fleet.tunnel.yamux.wire import LARGEST_U32


class Trips:
    """One ping is waited for at a time, so a peer that never answers costs one entry.

    An answer on a silent link is what the link takes. One that came while data flowed has stood behind that data: it
    may show that the link is shorter than was thought and never that it is longer.
    """

    __slots__ = ("_asked", "_value", "answers", "shortest_s")

    def __init__(self) -> None:
        """Nothing is known before the first answer."""
        self.shortest_s: float | None = None
        self.answers = 0
        self._value = 0
        self._asked: dict[int, tuple[float, bool]] = {}

    def __len__(self) -> int:
        """Pings an answer is waited for."""
        return len(self._asked)

    def ask(self, now: float, *, quiet: bool) -> int:
        """The value of a new ping; `quiet` when no data flows. It takes the place of one that is still waited for."""
        self._value = (self._value + 1) & LARGEST_U32
        self._asked.clear()
        self._asked[self._value] = (now, quiet)
        return self._value

    def answered(self, value: int, now: float) -> float | None:
        """The round trip of the ping with this value; None when nobody waits for it."""
        asked = self._asked.pop(value, None)
        if asked is None:
            return None
        sent, quiet = asked
        took_s = now - sent
        self.answers += 1
        if quiet or self.shortest_s is None or took_s < self.shortest_s:
            self.shortest_s = took_s
        return took_s
