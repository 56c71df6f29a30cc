"""Which stream ids the peer has used: ids may arrive out of order, are never used twice, and cost bounded memory."""

from __future__ import annotations

from bisect import bisect_right
from operator import attrgetter

from inference_fleet.tunnel.yamux.wire import Breach, ProtocolError

_START = attrgetter("start")


class PeerIds:
    """The peer's side of the id space. A peer that opens streams from several threads may send 5 before 3.

    What was skipped is kept as ranges, so that a leap over any number of ids costs as little as the frame that makes it.
    """

    def __init__(self, *, odd: bool, remembered: int) -> None:
        """`odd` when the peer is the dialling side; `remembered` bounds how many skipped ids may still be used."""
        self._parity = 1 if odd else 0
        self._highest = -1 if odd else 0
        self._gaps: list[range] = []
        self._skipped = 0
        self._remembered = remembered

    def owns(self, stream: int) -> bool:
        """Whether this id is the peer's to open."""
        return stream & 1 == self._parity

    def take(self, stream: int) -> None:
        """The peer opens `stream`; a wrong parity and a second use are breaches."""
        if not self.owns(stream):
            side = "odd" if self._parity else "even"
            raise ProtocolError(Breach.ID_PARITY, f"stream {stream} opened by the side with {side} ids")
        if stream > self._highest:
            if gap := range(self._highest + 2, stream, 2):
                self._leap(gap)
            self._highest = stream
        elif (at := self._gap_of(stream)) is not None:
            gap = self._gaps[at]
            self._gaps[at : at + 1] = filter(
                None, (range(gap.start, stream, 2), range(stream + 2, gap.stop, 2))
            )
            self._skipped -= 1
        else:
            raise ProtocolError(Breach.ID_REUSE, f"stream {stream} opened a second time")

    def used(self, stream: int) -> bool:
        """Whether the peer has ever opened this id."""
        return stream <= self._highest and self._gap_of(stream) is None

    def _gap_of(self, stream: int) -> int | None:
        at = bisect_right(self._gaps, stream, key=_START) - 1
        return at if at >= 0 and stream in self._gaps[at] else None

    def _leap(self, gap: range) -> None:
        """Remember what was skipped, and forget the oldest past the bound."""
        self._gaps.append(gap)
        self._skipped += len(gap)
        while (over := self._skipped - self._remembered) > 0:
            oldest = self._gaps[0]
            self._skipped -= min(over, len(oldest))
            self._gaps[:1] = filter(None, (oldest[over:],))
