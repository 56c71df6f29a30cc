"""Two yamux cores joined by byte pipes, with shells that move payload they know the pattern of."""

from __future__ import annotations

from collections import defaultdict

from inference_fleet.tunnel.yamux import Limits, Mux
from inference_fleet.tunnel.yamux.events import (
    Event,
    Finished,
    GoneAway,
    Opened,
    PingAnswered,
    Refused,
    Reset,
)

_PING = bytes((0, 2, 0, 1))
_PERIOD = 65521
_TABLE = bytes((i * 31 + i // 251) % 256 for i in range(_PERIOD)) * 16


def pattern(stream: int, offset: int, length: int) -> bytes:
    """The bytes a stream carries at an offset; a hole, a repeat or another stream's bytes look different."""
    start = (offset + stream * 7919) % _PERIOD
    piece = _TABLE[start : start + length]
    while len(piece) < length:
        piece += _TABLE[: length - len(piece)]
    return piece


class End:
    """One core with the least shell that can drive it."""

    def __init__(self, *, client: bool, limits: Limits | None = None) -> None:
        self.name = "client" if client else "server"
        self.mux = Mux(client=client, limits=limits)
        self.wire = bytearray()
        self.written: dict[int, int] = defaultdict(int)
        self.framed: dict[int, int] = defaultdict(int)
        self.received: dict[int, int] = defaultdict(int)
        self.consumed: dict[int, int] = defaultdict(int)
        self.finished: set[int] = set()
        self.peer_finished: set[int] = set()
        self.peer_reset: set[int] = set()
        self.reset_here: set[int] = set()
        self.unaccepted: list[int] = []
        self.refused: list[int] = []
        self.gone_away: list[int] = []
        self.asked = 0
        self.pongs = 0
        self.other: End

    def write(self, stream: int, length: int) -> None:
        """Have `length` more pattern bytes wait."""
        self.written[stream] += length
        self.mux.offer(stream, length)

    def unconsumed(self) -> bool:
        """Whether the shell holds bytes of living streams it has not used yet."""
        return any(got > self.consumed[s] and self.mux.alive(s) for s, got in self.received.items())

    def transmit(self, frames: int = 1 << 30) -> int:
        """Put up to `frames` frames on the wire."""
        sent = 0
        while sent < frames and (outgoing := self.mux.next_outgoing()) is not None:
            self.wire += outgoing.header
            self.asked += outgoing.header[:4] == _PING
            if outgoing.length:
                offset = self.framed[outgoing.stream]
                self.wire += pattern(outgoing.stream, offset, outgoing.length)
                self.framed[outgoing.stream] += outgoing.length
            sent += 1
        return sent

    def deliver(self, length: int, now: float = 0.0) -> list[Event]:
        """Take `length` bytes off the peer's wire, whatever they cut through."""
        wire = self.other.wire
        data = bytes(wire[:length])
        del wire[:length]
        return self.feed(data, now)

    def feed(self, data: bytes, now: float = 0.0) -> list[Event]:
        """Tell the core what came, and check payload against the pattern."""
        mux, at, told = self.mux, 0, []
        while at < len(data):
            due = mux.header_due
            if due:
                piece = data[at : at + due]
                events = mux.receive_header(piece, now)
            else:
                piece = data[at : at + mux.payload_due]
                stream = mux.payload_stream
                if stream:
                    assert piece == pattern(stream, self.received[stream], len(piece)), "bytes out of order"
                    self.received[stream] += len(piece)
                events = mux.receive_payload(len(piece))
            at += len(piece)
            for event in events:
                self._note(event)
                told.append(event)
        return told

    def _note(self, event: Event) -> None:
        match event:
            case Opened(stream=stream):
                self.unaccepted.append(stream)
            case Finished(stream=stream):
                self.peer_finished.add(stream)
            case Reset(stream=stream):
                self.peer_reset.add(stream)
            case Refused(stream=stream):
                self.refused.append(stream)
            case GoneAway(code=code):
                self.gone_away.append(code)
            case PingAnswered():
                self.pongs += 1
            case _:
                pass


def pair(limits: Limits | None = None) -> tuple[End, End]:
    """A dialling and an accepting end over an empty pipe."""
    client, server = End(client=True, limits=limits), End(client=False, limits=limits)
    client.other, server.other = server, client
    return client, server


def settle(*ends: End) -> None:
    """Move everything that can move without anybody consuming."""
    moved = True
    while moved:
        moved = False
        for end in ends:
            moved |= bool(end.transmit())
            moved |= bool(end.other.wire)
            end.deliver(len(end.other.wire))
