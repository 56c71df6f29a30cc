"""Which stream ids the peer has used: ids may arrive out of order, are never used twice, and cost bounded memory."""

from __future__ import annotations

from inference_fleet.tunnel.yamux.wire import Breach, ProtocolError


class PeerIds:
    """The peer's side of the id space. A peer that opens streams from several threads may send 5 before 3."""

    def __init__(self, *, odd: bool, remembered: int) -> None:
        """`odd` when the peer is the dialling side; `remembered` bounds how many skipped ids may still be used."""
        self._parity = 1 if odd else 0
        self._highest = -1 if odd else 0
        self._skipped: dict[int, None] = {}
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
            gap_from = max(self._highest + 2, stream - 2 * self._remembered)
            for skipped in range(gap_from, stream, 2):
                self._skipped[skipped] = None
            while len(self._skipped) > self._remembered:
                del self._skipped[next(iter(self._skipped))]
            self._highest = stream
        elif stream in self._skipped:
            del self._skipped[stream]
        else:
            raise ProtocolError(Breach.ID_REUSE, f"stream {stream} opened a second time")

    def used(self, stream: int) -> bool:
        """Whether the peer has ever opened this id."""
        return stream <= self._highest and stream not in self._skipped
