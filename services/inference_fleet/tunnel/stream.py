"""One stream as an `asyncio.Transport`, so aiohttp, websockets and a splice run over a tunnel unchanged.

Unlike a socket's transport it may be born without a protocol: what arrives before `set_protocol` is kept (the
window bounds it) and can be read with `read_exactly`, which is how the handshake reads its frames.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from inference_fleet.tunnel.errors import DeadlineExpired, StreamReset
from inference_fleet.tunnel.farewell import Farewell
from inference_fleet.tunnel.inbox import Inbox
from inference_fleet.tunnel.notices import ResetCause
from inference_fleet.tunnel.passing import SMALL_BYTES, Passing, fill, own, put_together
from inference_fleet.tunnel.watermarks import WRITE_HIGH_BYTES, water_marks

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_fleet.settings import Deadline
    from inference_fleet.tunnel.stream_host import StreamHost

_log = logging.getLogger(__name__)

_NO_EXTRA: Final[dict[str, Any]] = {}
_ReadableBuffer = bytes | bytearray | memoryview


class Stream(asyncio.Transport):
    """Half-close is `write_eof`, reset is `abort`, `close` flushes, sends FIN and hears no more.

    After `close` a peer that takes nothing of what was written is reset when the stall time is over; one that goes on
    sending once our FIN is out, as a socket would do it; and one that says nothing at all when the linger time is over. It is born by the thousand and mostly idle, so it
    has no dictionary, and its queues are there only while something is in them.
    """

    __slots__ = (
        "_closing", "_eof_in", "_eof_out", "_eof_told", "_error", "_farewell", "_fin_sent", "_gone", "_high", "_host",
        "_inbox", "_loop", "_lost_told", "_low", "_outbox", "_outbox_bytes",
        "_protocol", "_reading_paused", "_settling", "_unread", "_views", "_waiter", "_writing_paused", "id",
    )  # fmt: skip

    def __init__(self, host: StreamHost, stream_id: int, loop: asyncio.AbstractEventLoop) -> None:
        """Made by `Session` alone."""
        super().__init__(extra=_NO_EXTRA)
        self.id = stream_id
        self._host = host
        self._loop = loop
        self._protocol: asyncio.BaseProtocol | None = None
        self._views = False
        self._inbox = Inbox()
        self._outbox: deque[memoryview | bytearray] | None = None
        self._outbox_bytes = 0
        self._low, self._high = water_marks(WRITE_HIGH_BYTES, None)
        self._reading_paused = False
        self._writing_paused = False
        self._eof_in = False
        self._eof_told = False
        self._eof_out = False
        self._fin_sent = False
        self._closing = False
        self._unread = False
        self._gone = False
        self._error: ConnectionError | None = None
        self._lost_told = False
        self._settling = False
        self._waiter: asyncio.Future[None] | None = None
        self._farewell: Farewell | None = None

    def __repr__(self) -> str:
        state = "gone" if self._gone else "closing" if self._closing else "open"
        return f"<Stream {self.id} {state} in={self._inbox.length} out={self._outbox_bytes}>"

    # ---- facts

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """`session` and `stream_id`."""
        return self._host if name == "session" else self.id if name == "stream_id" else default

    @property
    def error(self) -> ConnectionError | None:
        """Why the stream ended badly: `StreamReset` or `SessionDead`; None while it lives or after a clean end."""
        return self._error

    def is_closing(self) -> bool:
        """Closed by us, ended by the peer's reset, or dead with its session."""
        return self._closing or self._gone

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol set last; a stream in its handshake has none yet."""
        assert self._protocol is not None, "no protocol was set on this stream yet"
        return self._protocol

    def accept(self) -> None:
        """Acknowledge it to the peer that opened it; whatever is said on it does so too, and so does a protocol."""
        self._host.stream_accepted(self)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the stream to a protocol; what was kept arrives in the next turn of the loop.

        `connection_made` is the caller's to call, as with every transport that changes hands.
        """
        self.accept()
        self._protocol = protocol
        self._views = isinstance(protocol, Passing)
        self._lost_told = False
        self._settle_soon()

    # ---- reading

    def is_reading(self) -> bool:
        """Whether data is handed to the protocol as it comes."""
        return not self._reading_paused and not self.is_closing()

    def pause_reading(self) -> None:
        """Keep what comes; the peer runs out of credit instead of us out of memory."""
        self._reading_paused = True

    def resume_reading(self) -> None:
        """Hand over what was kept, in the next turn of the loop."""
        self._reading_paused = False
        self._settle_soon()

    async def read_exactly(self, length: int, *, deadline: Deadline) -> bytes:
        """Exactly `length` bytes while no protocol is set.

        Raises `asyncio.IncompleteReadError` at the end of the stream, the stream's own error when it died, and
        `DeadlineExpired`. What had arrived before an error is still readable.
        """
        assert self._protocol is None, "a stream with a protocol is read by that protocol"
        while self._inbox.length < length:
            if self._error is not None:
                raise self._error
            if self._eof_in or self.is_closing():
                raise asyncio.IncompleteReadError(self._pop(self._inbox.length), length)
            if deadline.expired:
                raise DeadlineExpired(
                    f"stream {self.id}: {self._inbox.length} of {length} bytes came in time"
                )
            await self._something(deadline.remaining_s)
        return self._pop(length)

    async def _something(self, within_s: float) -> None:
        """Return when something came, or when the time is over: a timer and a future are all a handshake waits with."""
        self._waiter = self._loop.create_future()
        timer = self._loop.call_later(within_s, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _pop(self, length: int) -> bytes:
        taken = self._inbox.take(length)
        if length:
            self._host.stream_consumed(self, length)
        return taken

    # ---- writing

    def write(self, data: _ReadableBuffer) -> None:
        """Queue bytes; what does not go at once is copied unless it is `bytes`, so a caller may reuse its buffer."""
        if self._eof_out:
            raise RuntimeError(f"stream {self.id}: write after write_eof")
        if self.is_closing() or not data:
            return
        length = len(data)
        if length > self.room:
            self._host.stream_overflows(self)
            return
        self._outbox = self._outbox or deque()
        if length < SMALL_BYTES:
            put_together(self._outbox, data)
        else:
            self._outbox.append(memoryview(data))
        self._outbox_bytes += length
        self._host.stream_wrote(self, length)
        if length >= SMALL_BYTES and not isinstance(data, bytes):
            own(self._outbox)
        self._pause_writing_if_full()

    @property
    def room(self) -> int:
        """How many bytes a write may have; one that has more resets the stream."""
        return self._host.stream_room(self)

    def write_eof(self) -> None:
        """FIN after everything written so far; reading goes on."""
        if not self._eof_out and not self.is_closing():
            self._eof_out = True
            self._host.stream_finished(self)

    def can_write_eof(self) -> bool:
        """Half-close is kept end to end."""
        return True

    def get_write_buffer_size(self) -> int:
        """Bytes not yet handed to the session's carrier."""
        return self._outbox_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high water, in bytes."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As in asyncio: above `high` the protocol is paused, at once also, and at `low` resumed."""
        self._low, self._high = water_marks(high, low)
        self._pause_writing_if_full()

    # ---- ending

    def close(self) -> None:
        """Flush, FIN, and hear no more."""
        if self.is_closing():
            return
        self._unread = bool(self._inbox)
        self._discard_inbox()
        self._begin_closing()
        self._wake()

    def abort(self) -> None:
        """Reset: nothing more goes out, nothing more comes in."""
        self.reset(ResetCause.ABORTED)

    def reset(self, cause: ResetCause) -> None:
        """As `abort`, counted by another cause."""
        if not self._gone:
            self._closing = True
            self._host.stream_reset(self, cause)
            self.ended(None)

    # ---- what the session tells

    def deliver(self, data: bytes | memoryview) -> None:
        """Payload came in."""
        if self._closing:
            self._unread = True
            self._host.stream_consumed(self, len(data))
            if self._fin_sent:
                self.reset(ResetCause.UNREAD)
            return
        if self._protocol is None or self._reading_paused or self._inbox:
            self._inbox.keep(data)
            self._wake()
        else:
            self._hand_over(data if self._views or isinstance(data, bytes) else bytes(data))

    def peer_finished(self) -> None:
        """The peer's FIN came."""
        self._eof_in = True
        self._wake()
        if self._fin_sent:
            self._leave()
        self._settle()

    def take(self, length: int, into: list[bytes | memoryview]) -> None:
        """Move `length` bytes of what waits into a frame."""
        self._outbox_bytes -= length
        while length:
            assert self._outbox, "as many bytes as are counted"
            chunk = memoryview(self._outbox.popleft())
            if len(chunk) > length:
                self._outbox.appendleft(chunk[length:])
                chunk = chunk[:length]
            into.append(chunk)
            length -= len(chunk)
        if not self._outbox:
            self._outbox = None
        if self._writing_paused and self._outbox_bytes <= self._low and self._protocol is not None:
            self._writing_paused = False
            self._call(self._protocol.resume_writing)

    def fin_sent(self) -> None:
        """Our FIN is in a frame."""
        self._fin_sent = True
        if self._eof_in:
            self._leave()
        elif self._closing:
            self._after_fin()
        self._settle_soon()

    def ended(self, error: ConnectionError | None) -> None:
        """Reset by the peer, dead with the session, or (None) aborted here."""
        if self._gone:
            return
        self._error = error
        if self._protocol is not None:
            self._discard_inbox()
        self._leave()
        self._settle_soon()

    # ---- inside

    def _pause_writing_if_full(self) -> None:
        if self._outbox_bytes > self._high and not self._writing_paused and self._protocol is not None:
            self._writing_paused = True
            self._call(self._protocol.pause_writing)

    def _begin_closing(self) -> None:
        self._closing = True
        self._farewell = Farewell(self, self._host)
        if not self._eof_out:
            self._eof_out = True
            self._host.stream_finished(self)
        elif self._fin_sent:
            self._after_fin()
        if self._outbox_bytes:
            self._farewell.unsent()

    def _after_fin(self) -> None:
        if self._unread:
            self.reset(ResetCause.UNREAD)
        elif self._farewell is not None and not self._gone:
            self._farewell.said()

    def _leave(self) -> None:
        if self._gone:
            return
        self._gone = True
        if self._farewell is not None:
            self._farewell.stop()
            self._farewell = None
        unsent, self._outbox_bytes = self._outbox_bytes, 0
        self._outbox = None
        self._host.stream_dropped(self, unsent)
        self._wake()

    def _discard_inbox(self) -> None:
        if self._inbox:
            self._host.stream_consumed(self, self._inbox.length)
        self._inbox.clear()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _settle_soon(self) -> None:
        if not self._settling and self._protocol is not None:
            self._settling = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        """Tell the protocol whatever is due: kept data, then the end of file, then the end."""
        self._settling = False
        while self._inbox and self._protocol is not None and not self._reading_paused:
            self._hand_over(self._inbox.first())
        protocol = self._protocol
        if protocol is None or self._lost_told:
            return
        over = self._gone and (self._error is not None or self._closing)
        if self._eof_in and not over and not self._closing and not self._eof_told:
            if self._inbox or self._reading_paused:
                return
            self._eof_told = True
            keep = self._call(protocol.eof_received) if isinstance(protocol, asyncio.Protocol) else None
            if not keep:
                self._begin_closing()
        if over or (self._fin_sent and (self._closing or self._eof_told)):
            self._lost_told = True
            self._loop.call_soon(self._call, protocol.connection_lost, self._error)

    def _hand_over(self, data: bytes | memoryview) -> None:
        self._host.stream_consumed(self, len(data))
        protocol = self._protocol
        if isinstance(protocol, asyncio.Protocol):
            self._call(protocol.data_received, data)
        elif isinstance(protocol, asyncio.BufferedProtocol):
            self._call(fill, protocol, data)

    def _call(self, callback: Callable[..., Any], *args: Any) -> Any:
        try:
            return callback(*args)
        except Exception:  # noqa: BLE001  # as every transport: a protocol's bug ends its connection
            _log.exception("stream %d: its protocol failed in %s; the stream is reset", self.id, callback)
            self.reset(ResetCause.FAILED)
            return None


def reset_by_peer(stream: Stream, *, refused: bool) -> StreamReset:
    """The error of a stream the peer reset; `refused`: instead of acknowledging it."""
    unheard = " before it was acknowledged: the peer takes no such stream" if refused else ""
    return StreamReset(f"stream {stream.id} was reset by the peer{unheard}")
