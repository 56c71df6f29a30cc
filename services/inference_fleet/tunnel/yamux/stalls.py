"""Who has something to send and may not: each such wait that lasts is told once."""

from __future__ import annotations

from typing import Final

CARRIER: Final = 0
"""In the place of a stream: the connection itself takes nothing."""


class Stalls:
    """Waits begin and end without a clock, which costs a send next to nothing; only a look, now and then, has one.

    A wait is a stall once it was seen at two looks at least the notice time apart, so it is told within twice that time
    where looks come that often. Credit ends a wait: what begins after it is another one.
    """

    __slots__ = ("_seen", "_told")

    def __init__(self) -> None:
        """Nobody waits."""
        self._seen: dict[int, float | None] = {}
        self._told: set[int] = set()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._seen)

    def __contains__(self, stream: int) -> bool:
        """Whether it waits."""
        return stream in self._seen

    def begin(self, stream: int) -> None:
        """It has something to send and may not; said again it is the same wait."""
        self._seen.setdefault(stream, None)

    def end(self, stream: int) -> None:
        """It may send again, or is gone."""
        if self._seen and stream in self._seen:
            del self._seen[stream]
            self._told.discard(stream)

    def look(self, now: float, notice_s: float) -> list[int]:
        """Those whose wait has become a stall since the last look."""
        found = []
        for stream, since in self._seen.items():
            if since is None:
                self._seen[stream] = now
            elif now - since >= notice_s and stream not in self._told:
                self._told.add(stream)
                found.append(stream)
        return found
