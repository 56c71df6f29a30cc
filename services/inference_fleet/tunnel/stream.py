"""One stream as an `asyncio.Transport`, so aiohttp, websockets and a splice run over a tunnel unchanged.

Unlike a socket's transport it may be born without a protocol: what arrives before `set_protocol` is kept (the
window bounds it) and can be read with `read_exactly`, which is how the handshake reads its frames.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from inference_fleet.tunnel.errors import DeadlineExpired, StreamReset
from inference_fleet.tunnel.inbox import Inbox
from inference_fleet.tunnel.notices import ResetCause

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_fleet.settings import Deadline

_log = logging.getLogger(__name__)

WRITE_HIGH_BYTES: Final = 64 * 1024
_ReadableBuffer = bytes | bytearray | memoryview


class StreamHost(Protocol):
    """What a stream asks of its session."""

    def stream_admits(self, stream: Stream, length: int) -> bool:
        """Whether there is room for more bytes; when there is none the stream has been reset."""

    def stream_wrote(self, stream: Stream, length: int) -> None:
        """More bytes wait, and may be taken before this returns."""

    def stream_finished(self, stream: Stream) -> None:
        """FIN after what waits."""

    def stream_reset(self, stream: Stream, cause: ResetCause) -> None:
        """RST now."""

    def stream_consumed(self, stream: Stream, length: int) -> None:
        """Credit for the peer."""

    def stream_dropped(self, stream: Stream, unsent: int) -> None:
        """The stream left the session; `unsent` bytes of it will never go."""

    def linger(self, then: Callable[[], None]) -> asyncio.TimerHandle:
        """Call `then` once a closed stream has waited long enough for its peer."""


class Stream(asyncio.Transport):
    """Half-close is `write_eof`, reset is `abort`, `close` flushes, sends FIN and hears no more.

    After `close` a peer that goes on sending is reset once our FIN is out, as a socket would do it, and one
    that says nothing at all is reset when the linger time is over.
    """

    def __init__(self, host: StreamHost, stream_id: int, loop: asyncio.AbstractEventLoop) -> None:
        """Made by `Session` alone."""
        super().__init__(extra={"session": host, "stream_id": stream_id})
        self.id = stream_id
        self._host = host
        self._loop = loop
        self._protocol: asyncio.BaseProtocol | None = None
        self._inbox = Inbox()
        self._outbox: deque[memoryview] = deque()
        self._outbox_bytes = 0
        self._high = WRITE_HIGH_BYTES
        self._low = WRITE_HIGH_BYTES // 4
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
        self._linger: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "gone" if self._gone else "closing" if self._closing else "open"
        return f"<Stream {self.id} {state} in={self._inbox.length} out={self._outbox_bytes}>"

    # ---- facts

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

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the stream to a protocol; what was kept arrives in the next turn of the loop.

        `connection_made` is the caller's to call, as with every transport that changes hands.
        """
        self._protocol = protocol
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
            self._waiter = self._loop.create_future()
            try:
                async with asyncio.timeout(deadline.remaining_s):
                    await self._waiter
            except TimeoutError:
                raise DeadlineExpired(
                    f"stream {self.id}: {self._inbox.length} of {length} bytes came in time"
                ) from None
            finally:
                self._waiter = None
        return self._pop(length)

    def _pop(self, length: int) -> bytes:
        taken = self._inbox.take(length)
        if length:
            self._host.stream_consumed(self, length)
        return taken

    # ---- writing

    def write(self, data: _ReadableBuffer) -> None:
        """Queue bytes; copied unless they are `bytes`, so a caller may reuse its buffer."""
        if self._eof_out:
            raise RuntimeError(f"stream {self.id}: write after write_eof")
        if self.is_closing() or not data:
            return
        owned = data if isinstance(data, bytes) else bytes(data)
        if not self._host.stream_admits(self, len(owned)):
            return
        self._outbox.append(memoryview(owned))
        self._outbox_bytes += len(owned)
        self._host.stream_wrote(self, len(owned))
        self._pause_writing_if_full()

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
        if high is None:
            high = WRITE_HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be at least low ({low}), which must be at least 0")
        self._high, self._low = high, low
        self._pause_writing_if_full()

    # ---- ending

    def close(self) -> None:
        """Flush, FIN, and hear no more."""
        if self.is_closing():
            return
        self._unread = bool(self._inbox)
        self._discard_inbox()
        self._closing = True
        if not self._eof_out:
            self._eof_out = True
            self._host.stream_finished(self)
        elif self._fin_sent:
            self._after_fin()
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
            self._hand_over(data if isinstance(data, bytes) else bytes(data))

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
            chunk = self._outbox.popleft()
            if len(chunk) > length:
                self._outbox.appendleft(chunk[length:])
                chunk = chunk[:length]
            into.append(chunk)
            length -= len(chunk)
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

    def _after_fin(self) -> None:
        if self._unread:
            self.reset(ResetCause.UNREAD)
        elif self._linger is None and not self._gone:
            self._linger = self._host.linger(lambda: self.reset(ResetCause.LINGER))

    def _leave(self) -> None:
        if self._gone:
            return
        self._gone = True
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        unsent, self._outbox_bytes = self._outbox_bytes, 0
        self._outbox.clear()
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
                self._closing = True
                if not self._eof_out:
                    self._eof_out = True
                    self._host.stream_finished(self)
        if over or (self._fin_sent and (self._closing or self._eof_told)):
            self._lost_told = True
            self._loop.call_soon(self._call, protocol.connection_lost, self._error)

    def _hand_over(self, data: bytes) -> None:
        self._host.stream_consumed(self, len(data))
        protocol = self._protocol
        if isinstance(protocol, asyncio.Protocol):
            self._call(protocol.data_received, data)
        elif isinstance(protocol, asyncio.BufferedProtocol):
            self._call(_fill, protocol, data)

    def _call(self, callback: Callable[..., Any], *args: Any) -> Any:
        try:
            return callback(*args)
        except Exception:  # noqa: BLE001  # as every transport: a protocol's bug ends its connection
            _log.exception("stream %d: its protocol failed in %s; the stream is reset", self.id, callback)
            self.reset(ResetCause.FAILED)
            return None


def _fill(protocol: asyncio.BufferedProtocol, data: bytes) -> None:
    view = memoryview(data)
    while view:
        buffer = memoryview(protocol.get_buffer(len(view)))
        length = min(len(buffer), len(view))
        buffer[:length] = view[:length]
        view = view[length:]
        protocol.buffer_updated(length)


def reset_by_peer(stream: Stream, *, refused: bool) -> StreamReset:
    """The error of a stream the peer reset; `refused`: instead of acknowledging it."""
    unheard = " before it was acknowledged: the peer takes no such stream" if refused else ""
    return StreamReset(f"stream {stream.id} was reset by the peer{unheard}")
