"""The yamux session as a state machine: headers and lengths in, events and headers out, no byte of payload seen.

The shell's loop is: give `header_due` bytes to `receive_header`, or pass `payload_due` bytes on to the stream in
`payload_stream` (0: nobody wants them) and report them with `receive_payload`; then send what `next_outgoing` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_fleet.tunnel.errors import StreamLimit
from inference_fleet.tunnel.yamux.budgets import budgets_of
from inference_fleet.tunnel.yamux.events import (
    Acknowledged,
    Credited,
    Event,
    Finished,
    GoneAway,
    Opened,
    Outgoing,
    PingAnswered,
    Refused,
    Reset,
)
from inference_fleet.tunnel.yamux.ids import PeerIds
from inference_fleet.tunnel.yamux.limits import Limits
from inference_fleet.tunnel.yamux.lingering import Lingering
from inference_fleet.tunnel.yamux.sending import Sending
from inference_fleet.tunnel.yamux.stalls import Stalls
from inference_fleet.tunnel.yamux.state import StreamState
from inference_fleet.tunnel.yamux.trips import Trips
from inference_fleet.tunnel.yamux.windows import Windows
from inference_fleet.tunnel.yamux.wire import (
    ACK,
    FIN,
    GO_AWAY,
    GO_AWAY_NORMAL,
    GO_AWAY_PROTOCOL,
    HEADER_BYTES,
    LARGEST_U32,
    PING,
    RST,
    SYN,
    WINDOW,
    Breach,
    Header,
    ProtocolError,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Mux:
    """One end of a yamux session. `client` is the dialling side and opens odd ids.

    A `ProtocolError` from any method means the session is over: what `next_outgoing` gives from then on is
    the go-away that says so.
    """

    def __init__(
        self, *, client: bool, limits: Limits | None = None, accepting: bool = True, local_s: float = 0.0
    ) -> None:
        """A side that accepts no streams resets every open; windows grow by distance where a round trip takes `local_s` or more."""
        self._accepting = accepting
        self._limits = limits or Limits()
        self._streams: dict[int, StreamState] = {}
        self.stalls = Stalls()
        self._sending = Sending(self._streams, self._limits, self.stalls)
        self._trips = Trips()
        self._windows = Windows(self._limits, self._trips, local_s=local_s)
        self._next_id = 1 if client else 2
        self._peer_ids = PeerIds(odd=not client, remembered=self._limits.remembered_ids)
        self._lingering = Lingering(remembered=self._limits.remembered_ids)
        self._half_open_here = 0
        self._half_open_there = 0
        self._partial = bytearray()
        self._payload_due = 0
        self._payload_stream = 0
        self._payload_final = False
        self._resets, self._asked, self._idle = budgets_of(self._limits)
        self._left = False
        self._peer_left = False
        self._failed = False

    # ---- facts

    @property
    def header_due(self) -> int:
        """Bytes missing to the next header (0 while payload is due)."""
        return 0 if self._payload_due else HEADER_BYTES - len(self._partial)

    @property
    def payload_due(self) -> int:
        """Payload bytes that come before the next header."""
        return self._payload_due

    @property
    def payload_stream(self) -> int:
        """Whose payload is due; 0 when the stream is gone and the bytes go nowhere."""
        return self._payload_stream if self._payload_stream in self._streams else 0

    @property
    def streams(self) -> int:
        """How many streams are alive."""
        return len(self._streams)

    def alive(self, stream: int) -> bool:
        """Whether the core still knows this stream."""
        return stream in self._streams

    def send_credit(self, stream: int) -> int:
        """How much the peer lets this stream send now."""
        state = self._streams.get(stream)
        return state.send_credit if state else 0

    # ---- what the shell asks for

    def open(self) -> int:
        """Open a stream; its SYN jumps the queue and data may follow at once."""
        limits = self._limits
        if self._left or self._peer_left or self._failed:
            raise StreamLimit("the session takes no new streams: it is going away")
        if len(self._streams) >= limits.open_streams:
            raise StreamLimit(f"open_streams={limits.open_streams} streams are open on this session")
        if self._half_open_here >= limits.half_open_streams:
            raise StreamLimit(
                f"half_open_streams={limits.half_open_streams} streams wait for the peer's acknowledgement"
            )
        if self._next_id > LARGEST_U32:
            raise StreamLimit("the session has used up its stream ids; a new session has new ones")
        stream = self._next_id
        self._control(WINDOW, SYN, stream, 0)
        self._next_id += 2
        self._half_open_here += 1
        self._streams[stream] = StreamState(ours=True)
        return stream

    def accept(self, stream: int) -> None:
        """Acknowledge a stream the peer opened, which is half-open until then; so does whatever is said on it."""
        state = self._streams.get(stream)
        if state is not None:
            self._accept(stream, state)

    def offer(self, stream: int, length: int) -> None:
        """`length` more bytes of this stream wait in the shell."""
        state = self._streams.get(stream)
        if state is None:
            return
        assert not state.fin_wanted, "data after the FIN was asked for"
        self._accept(stream, state)
        state.waiting += length
        self._sending.take_turn(stream, state)

    def finish(self, stream: int) -> None:
        """Half-close: FIN after all that waits."""
        state = self._streams.get(stream)
        if state is not None and not state.fin_wanted:
            self._accept(stream, state)
            state.fin_wanted = True
            self._sending.take_turn(stream, state)

    def reset(self, stream: int) -> None:
        """End the stream both ways at once. What the peer already sent is let through to nobody."""
        state = self._streams.get(stream)
        if state is None:
            return
        self._drop(stream, state)
        if not state.fin_received:
            self._lingering.begin(stream, state.recv_credit)
        if not self._failed:
            self._fence(self._sending.reset, stream)

    def consumed(self, stream: int, length: int, now: float = 0.0) -> None:
        """The shell's reader has really used `length` bytes: only now does the peer get credit for them."""
        state = self._streams.get(stream)
        if state is not None and self._windows.consumed(state, length, now):
            self._sending.credit(stream)
            if self._windows.curious and not self._trips and self._sending.calm:
                self.ping(now, quiet=False)

    def ping(self, now: float, *, quiet: bool = True) -> None:
        """Ask for an answer; it comes as `PingAnswered`. `quiet`: nothing was heard for a while."""
        self._control(PING, SYN, 0, self._trips.ask(now, quiet=quiet))

    def measure(self, now: float) -> None:
        """Ask how far the peer is, unless that is known or being asked."""
        if self._trips.shortest_s is None and not self._trips:
            self.ping(now)

    def go_away(self, code: int = GO_AWAY_NORMAL) -> None:
        """Take no new streams; running ones finish (code 0). Said once."""
        if not self._left:
            self._left = True
            self._control(GO_AWAY, 0, 0, code)

    def fail(self, code: int = GO_AWAY_PROTOCOL) -> None:
        """The session is over: all that is still sent is the go-away."""
        if not self._failed:
            self._failed = self._left = True
            self._sending.only(GO_AWAY, code)

    def next_outgoing(self) -> Outgoing | None:
        """What to send next: header bytes, and how much payload of which stream follows them."""
        outgoing = self._sending.next()
        if outgoing is not None and outgoing.final:
            state = self._streams[outgoing.stream]
            if state.fin_received:
                self._drop(outgoing.stream, state)
        return outgoing

    # ---- what the peer said

    def receive_header(self, piece: bytes | memoryview, now: float) -> Sequence[Event]:
        """At most `header_due` bytes of a header; answers once it is whole."""
        assert 0 < len(piece) <= self.header_due, "more than the header that is due"
        assert not self._failed, "the session has failed"
        if len(piece) < HEADER_BYTES:
            self._partial += piece
            if len(self._partial) < HEADER_BYTES:
                return ()
            piece = bytes(self._partial)
            self._partial.clear()
        try:
            header = unpack(piece)
            if header.type == PING:
                return self._on_ping(header, now)
            if header.type == GO_AWAY:
                if self._peer_left:
                    self._idle.spend(now)
                self._peer_left = True
                return (GoneAway(header.length),)
            return self._on_stream_frame(header, now)
        except ProtocolError:
            self.fail()
            raise

    def receive_payload(self, length: int) -> Sequence[Event]:
        """`length` of the payload due have been passed on (or dropped, when `payload_stream` is 0)."""
        assert 0 < length <= self._payload_due, "more than the payload that is due"
        self._payload_due -= length
        if self._payload_due or not self._payload_final:
            return ()
        self._payload_final = False
        return self._on_fin(self._payload_stream)

    def _on_ping(self, header: Header, now: float) -> Sequence[Event]:
        if header.flags == SYN:
            self._asked.spend(now)
            self._control(PING, ACK, 0, header.length)
            return ()
        took_s = self._trips.answered(header.length, now)
        if took_s is None:
            self._idle.spend(now)
            return ()
        return (PingAnswered(took_s),)

    def _on_stream_frame(self, header: Header, now: float) -> Sequence[Event]:
        kind, flags, stream, length = header
        events: list[Event] = []
        if not flags and not length:
            self._idle.spend(now)
        if flags & SYN:
            self._on_syn(stream, now, events)
        elif not self._ever_opened(stream):
            raise ProtocolError(Breach.UNKNOWN_STREAM, f"a frame for stream {stream}, which nobody opened")
        state = self._streams.get(stream)
        if flags & ACK:
            self._on_ack(stream, None if flags & RST else state, events)
        if flags & RST:
            self._on_reset(stream, state, now, events)
        elif kind == WINDOW:
            self._on_credit(stream, state, length, events)
        elif length:
            self._on_data(stream, state, length, now)
            self._payload_final = bool(flags & FIN)
            return events
        if flags & FIN:
            events.extend(self._on_fin(stream))
        return events

    def _on_reset(self, stream: int, state: StreamState | None, now: float, events: list[Event]) -> None:
        self._resets.spend(now)
        self._lingering.end(stream)
        if state is not None:
            self._drop(stream, state)
            events.append(Reset(stream, refused=state.ours and not state.acknowledged))

    def _on_syn(self, stream: int, now: float, events: list[Event]) -> None:
        self._peer_ids.take(stream)
        limits = self._limits
        why = ""
        if not self._accepting:
            why = "this side serves no streams"
        elif self._left or self._peer_left:
            why = "going away"
        elif len(self._streams) >= limits.open_streams:
            why = f"open_streams={limits.open_streams}"
        elif self._half_open_there >= limits.half_open_streams:
            why = f"half_open_streams={limits.half_open_streams}"
        state = self._streams[stream] = StreamState(ours=False)
        self._half_open_there += 1
        if why:
            self._resets.spend(now)
            self.reset(stream)
            events.append(Refused(stream, why))
        else:
            self._sending.take_turn(stream, state)
            events.append(Opened(stream))

    def _on_ack(self, stream: int, state: StreamState | None, events: list[Event]) -> None:
        if self._peer_ids.owns(stream):
            raise ProtocolError(
                Breach.ACK_OF_OWN_STREAM, f"an acknowledgement of stream {stream} by the side that opened it"
            )
        if state is not None and not state.acknowledged:
            state.acknowledged = True
            self._half_open_here -= 1
            events.append(Acknowledged(stream))

    def _on_credit(self, stream: int, state: StreamState | None, delta: int, events: list[Event]) -> None:
        if state is None or not delta:
            return
        if state.send_credit + delta > LARGEST_U32:
            raise ProtocolError(
                Breach.WINDOW_OVERFLOW,
                f"stream {stream}: {delta} on top of {state.send_credit} passes 2^32-1",
            )
        state.send_credit += delta
        self._sending.take_turn(stream, state)
        events.append(Credited(stream))

    def _on_data(self, stream: int, state: StreamState | None, length: int, now: float) -> None:
        if state is not None:
            if state.fin_received:
                raise ProtocolError(Breach.DATA_AFTER_FIN, f"{length} bytes on stream {stream} after its FIN")
            credit = state.recv_credit
        elif (lingering := self._lingering.credit(stream)) is not None:
            credit = lingering
        else:
            self._resets.spend(now)
            credit = LARGEST_U32
        if length > credit:
            raise ProtocolError(
                Breach.WINDOW_EXCEEDED, f"{length} bytes on stream {stream}, which has credit for {credit}"
            )
        if state is not None:
            state.recv_credit -= length
        else:
            self._lingering.brought(stream, length)
        self._payload_due = length
        self._payload_stream = stream

    def _on_fin(self, stream: int) -> Sequence[Event]:
        self._lingering.end(stream)
        state = self._streams.get(stream)
        if state is None or state.fin_received:
            return ()
        state.fin_received = True
        self._windows.settle(state)
        self._sending.settled(stream, state)
        if state.fin_sent:
            self._drop(stream, state)
        return (Finished(stream),)

    # ---- bookkeeping

    def _ever_opened(self, stream: int) -> bool:
        if self._peer_ids.owns(stream):
            return self._peer_ids.used(stream)
        return stream < self._next_id

    def _accept(self, stream: int, state: StreamState) -> None:
        if not (state.acknowledged or state.ours):
            state.acknowledged = True
            self._half_open_there -= 1
            self._sending.acknowledge(stream, state)

    def _drop(self, stream: int, state: StreamState) -> None:
        del self._streams[stream]
        self._windows.returned(state)
        self._sending.forget(stream)
        self.stalls.end(stream)
        if not state.acknowledged:
            if state.ours:
                self._half_open_here -= 1
            else:
                self._half_open_there -= 1

    def _control(self, kind: int, flags: int, stream: int, length: int) -> None:
        if not self._failed:
            self._fence(self._sending.control, kind, flags, stream, length)

    def _fence(self, queue: Callable[..., None], *args: int) -> None:
        try:
            queue(*args)
        except ProtocolError:
            self.fail()
            raise
