"""The order of what is sent: control first, then credit, then one frame of each stream in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from inference_fleet.tunnel.yamux.events import Outgoing
from inference_fleet.tunnel.yamux.wire import (
    ACK,
    DATA,
    FIN,
    RST,
    WINDOW,
    Breach,
    ProtocolError,
    pack,
)

if TYPE_CHECKING:
    from inference_fleet.tunnel.yamux.limits import Limits
    from inference_fleet.tunnel.yamux.stalls import Stalls
    from inference_fleet.tunnel.yamux.state import StreamState


class Sending:
    """Three lanes. A FIN travels in its stream's own lane, so it never passes that stream's data."""

    def __init__(self, streams: dict[int, StreamState], limits: Limits, stalls: Stalls) -> None:
        """`streams` and `stalls` are the core's own, shared."""
        self._streams = streams
        self._stalls = stalls
        self._limits = limits
        self._control: deque[bytes] = deque()
        self._credits: OrderedDict[int, None] = OrderedDict()
        self._turns: deque[int] = deque()

    def control(self, kind: int, flags: int, stream: int, length: int) -> None:
        """Queue a header that jumps all data."""
        if len(self._control) >= self._limits.control_frames:
            raise ProtocolError(
                Breach.CONTROL_BACKLOG,
                f"{len(self._control)} control frames wait: the peer asks for answers and does not read them",
            )
        self._control.append(pack(kind, flags, stream, length))

    def reset(self, stream: int) -> None:
        """Queue a reset of a stream; it jumps the stream's own data."""
        self.control(WINDOW, RST, stream, 0)

    @property
    def calm(self) -> bool:
        """Whether no control frame waits."""
        return not self._control

    def credit(self, stream: int) -> None:
        """Note that a stream owes its peer credit: all that is owed by then is told as one update."""
        self._credits[stream] = None

    def acknowledge(self, stream: int, state: StreamState) -> None:
        """The same with the answer to the peer's open, which no data of the stream passes."""
        state.ack_due = True
        self._credits[stream] = None

    def take_turn(self, stream: int, state: StreamState) -> None:
        """Put a stream in the round if it has something to send and is not in it yet."""
        if state.in_turn:
            return
        if state.sendable:
            state.in_turn = True
            self._turns.append(stream)
            self._stalls.end(stream)
        elif state.waiting:
            self._stalls.begin(stream)

    def forget(self, stream: int) -> None:
        """The stream is gone: no credit for it. Its place in the round is skipped when it comes up."""
        self._credits.pop(stream, None)

    def settled(self, stream: int, state: StreamState) -> None:
        """The peer sends no more: it needs no credit, and only the answer to its open may still be due."""
        if not state.ack_due:
            self.forget(stream)

    def only(self, kind: int, length: int) -> None:
        """Drop everything and send this one session frame last."""
        self._control.clear()
        self._credits.clear()
        self._turns.clear()
        self._control.append(pack(kind, 0, 0, length))

    def next(self) -> Outgoing | None:
        """What to send now, or None."""
        if self._control:
            return Outgoing(self._control.popleft())
        while self._credits:
            stream, _ = self._credits.popitem(last=False)
            state = self._streams.get(stream)
            if state is not None:
                return Outgoing(self._credit_header(stream, state))
        while self._turns:
            stream = self._turns.popleft()
            state = self._streams.get(stream)
            if state is None:
                continue
            state.in_turn = False
            if state.sendable:
                return self._data(stream, state)
        return None

    @staticmethod
    def _credit_header(stream: int, state: StreamState) -> bytes:
        delta = 0 if state.fin_received else state.owed
        state.owed -= delta
        state.recv_credit += delta
        flags, state.ack_due = ACK if state.ack_due else 0, False
        return pack(WINDOW, flags, stream, delta)

    def _data(self, stream: int, state: StreamState) -> Outgoing:
        length = min(state.waiting, state.send_credit, self._limits.frame_bytes)
        state.waiting -= length
        state.send_credit -= length
        # FIN in a frame of its own: told of both at once, hashicorp/yamux may read the end before the data.
        final = not length
        state.fin_sent = final
        if length and state.fin_wanted and not state.waiting:
            state.in_turn = True
            self._turns.appendleft(stream)
        else:
            self.take_turn(stream, state)
        return Outgoing(pack(DATA, FIN if final else 0, stream, length), stream, length, final)
