"""A WebSocket on the bare transport: what the connection's own handshake left, taken over by the session.

The transport reads into one buffer that all connections of the process share, since each read is used up in the
callback that brings it. What goes out is owned bytes: a transport may keep what it was given, never a view of a
buffer that is written again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import sys
import time
from typing import TYPE_CHECKING, Final

from inference_fleet.tunnel.outbound import WriteStalled
from inference_fleet.tunnel.websocket import (
    CloseCode,
    Closed,
    FrameReader,
    FramingError,
    Opcode,
    Piece,
    Ping,
    close_payload,
    frame_head,
    opened,
    turned,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inference_fleet.tunnel.carrier import Receiver

READ_BYTES: Final = 256 * 1024 + 64
"""A whole message of those our own ends send, its headers included: two frames."""
WRITE_HIGH_BYTES: Final = 256 * 1024
TLS_WRITE_HIGH_BYTES: Final = 64 * 1024
"""Below it lies another buffer of the same kind, for what is encrypted."""
_WHOLE_BYTES: Final = 64 * 1024
_FIRST_READ_BYTES: Final = 16 * 1024
_LEAST_READ_BYTES: Final = 4 * 1024
_TURN_CPU_S: Final = 0.004
"""Processor time of one read, about: what a peer packs into it must not keep the loop from everybody else."""
_UNSENT_LOW_BYTES: Final = 128 * 1024
_BYTES_ACKED: Final = 120
"""Where `tcpi_bytes_acked` stands in Linux's `struct tcp_info`, which only ever grows at its end."""
_LATE_SHARE: Final = 0.1
_MASKED_AT_ONCE_BYTES: Final = 4096
_BUFFER: Final = memoryview(bytearray(READ_BYTES))
_log = logging.getLogger(__name__)


def _masked_at_once(head: bytes, key: bytes, parts: Sequence[bytes | memoryview]) -> bytes:
    """Head and masked payload with one copy less: the head is masked twice, of which nothing stays."""
    turn = turned(key, -len(head))
    return opened(memoryview(b"".join([opened(memoryview(head), turn), *parts])), turn)


class DirectWebSocket(asyncio.BufferedProtocol):
    """A `DirectCarrier`. `client` is the side that dialled, which masks what it sends."""

    def __init__(
        self, transport: asyncio.Transport, *, client: bool, path: str, stall_s: float, early: bytes = b""
    ) -> None:
        """Takes the transport over at once and reads nothing before `attach`; `early` came with the handshake."""
        self.path = path
        self.can_write = True
        self._transport = transport
        self._client = client
        self._stall_s = stall_s
        self._early = early
        self._frames = FrameReader(masked=not client)
        self._receiver: Receiver | None = None
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._why: Exception | None = None
        self._closing = False
        self._pong: bytes | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._unsent = 0
        self._second = 0.0
        self._share = _FIRST_READ_BYTES
        transport.pause_reading()
        transport.set_protocol(self)
        self._encrypted = transport.get_extra_info("sslcontext") is not None
        transport.set_write_buffer_limits(high=TLS_WRITE_HIGH_BYTES if self._encrypted else WRITE_HIGH_BYTES)
        if (sock := transport.get_extra_info("socket")) is not None:
            # what waits in the kernel cannot be overtaken by anything; 25 is TCP_NOTSENT_LOWAT where Python lacks it
            with contextlib.suppress(OSError):
                sock.setsockopt(
                    socket.IPPROTO_TCP, getattr(socket, "TCP_NOTSENT_LOWAT", 25), _UNSENT_LOW_BYTES
                )

    # ---- the session's side

    def attach(self, receiver: Receiver) -> None:
        """Begin to tell, first what came early."""
        self._receiver = receiver
        if self._gone.done():
            receiver.carrier_lost(self._why)
            return
        if self._early:
            early, self._early = self._early, b""
            self._read(memoryview(early))
        if not self._gone.done() and not self._transport.is_closing():
            self._transport.resume_reading()

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """One binary message."""
        self._send(Opcode.BINARY, parts)

    async def close(self, code: int = CloseCode.NORMAL, reason: str = "") -> None:
        """The closing handshake; the caller bounds it."""
        if not self._closing and not self._transport.is_closing():
            self._closing = True
            self._send(Opcode.CLOSE, [close_payload(code, reason)])
            self._transport.resume_reading()
        await asyncio.shield(self._gone)

    def abort(self) -> None:
        """Drop the connection."""
        self._transport.abort()

    # ---- the transport's side

    def get_buffer(self, sizehint: int) -> memoryview:
        """As much of the shared buffer as one turn may spend on this peer, whatever is hinted.

        Where much of a frame is due, the read ends with it. One that took the beginning of the next as well would leave
        that one's last bytes to a further read, and so on: all payload would come, and go on, in two pieces.
        """
        del sizehint
        due, most = self._frames.due, self._share
        return _BUFFER[: due if _WHOLE_BYTES <= due < most else most]

    def buffer_updated(self, nbytes: int) -> None:
        """A read. One that took long is followed by shorter ones, for as long as what comes costs as much."""
        began = time.thread_time()
        self._read(_BUFFER[:nbytes])
        took = time.thread_time() - began
        if took > _TURN_CPU_S:
            self._share = max(_LEAST_READ_BYTES, int(nbytes * _TURN_CPU_S / took))
        elif self._share < READ_BYTES:
            self._share = min(READ_BYTES, 2 * self._share)

    def eof_received(self) -> None:
        """The peer closed without a goodbye; the transport closes itself."""

    def pause_writing(self) -> None:
        """Above high water: from here on the peer has to read."""
        self.can_write = False
        self._unsent = self._backlog()
        self._watch()

    def resume_writing(self) -> None:
        """Below low water."""
        self.can_write = True
        self._unwatch()
        if self._pong is not None:
            pong, self._pong = self._pong, None
            self._send(Opcode.PONG, [pong])
        if self._receiver is not None:
            self._receiver.writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """The end."""
        self._unwatch()
        self.can_write = False
        self._why = self._why or exc
        if not self._gone.done():
            self._gone.set_result(None)
        if self._receiver is not None:
            self._receiver.carrier_lost(self._why)

    # ---- inside

    def _read(self, data: memoryview) -> None:
        receiver = self._receiver
        if self._transport.is_closing():
            return
        if receiver is not None:
            receiver.heard()
        self._count_seconds()
        try:
            for told in self._frames.receive(data):
                if isinstance(told, Piece):
                    if receiver is not None and not self._closing:
                        receiver.received(told.data, told.key)
                elif isinstance(told, Ping):
                    self._answer(told.payload)
                elif isinstance(told, Closed):
                    self._end(told)
                    break
        except FramingError as error:
            _log.warning("hanging up on a WebSocket peer: %s", error)
            self._why = ConnectionAbortedError(f"the peer broke the WebSocket framing: {error}")
            self._send(Opcode.CLOSE, [close_payload(error.code, str(error))])
            self._leave()
        if receiver is not None:
            receiver.received_all()

    def _count_seconds(self) -> None:
        if (now := self._loop.time()) - self._second >= 1:
            self._second = now
            self._frames.second_passed()

    def _answer(self, ping: bytes) -> None:
        """To a peer that does not read its answers only the latest is kept (RFC 6455 5.5.3 lets us)."""
        if self.can_write:
            self._send(Opcode.PONG, [ping])
        else:
            self._pong = ping

    def _end(self, told: Closed) -> None:
        if not self._closing:
            self._closing = True
            code = CloseCode.NORMAL if told.code == CloseCode.NO_STATUS else told.code
            self._send(Opcode.CLOSE, [close_payload(code, "")])
        self._leave()

    def _leave(self) -> None:
        """Close; a peer that has said its last word and reads nothing must not keep the session from hearing of it.

        Nor may one that owes TLS its own goodbye, for which the transport waits.
        """
        self._transport.close()
        if self._receiver is not None and (self._encrypted or self._transport.get_write_buffer_size()):
            self.can_write = False
            self._receiver.carrier_lost(self._why)

    def _send(self, opcode: Opcode, parts: Sequence[bytes | memoryview]) -> None:
        if self._transport.is_closing():
            return
        length = sum(len(part) for part in parts)
        if self._client:
            key = secrets.token_bytes(4)
            if length >= _MASKED_AT_ONCE_BYTES:
                self._transport.write(_masked_at_once(frame_head(opcode, length, key), key, parts))
                return
            body = parts[0] if len(parts) == 1 else b"".join(parts)
            parts = [opened(memoryview(body), key)]
        else:
            key = b""
        # joined: `writelines` of Python 3.12.0 to 3.12.8 and 3.13.0 and 3.13.1 never pauses its protocol
        self._transport.write(b"".join([frame_head(opcode, length, key), *parts]))

    def _backlog(self) -> int:
        """A number that falls as the peer takes what it was sent, and not otherwise.

        Under TLS the transport's own size tells nothing of that: below it lies the socket's transport with a buffer of
        any length, and until most of that is gone the upper one stays as it is. There the kernel is asked.
        """
        sock = self._transport.get_extra_info("socket")
        if self._encrypted and sock is not None:
            with contextlib.suppress(OSError):
                told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED + 8)
                if len(told) == _BYTES_ACKED + 8:
                    return -int.from_bytes(told[_BYTES_ACKED:], sys.byteorder)
        return self._transport.get_write_buffer_size()

    def _watch(self) -> None:
        self._unwatch()
        self._due = self._loop.time() + self._stall_s
        self._timer = self._loop.call_at(self._due, self._judge)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _judge(self) -> None:
        """A buffer that shrinks is a slow peer; one that does not is a peer that stopped reading.

        A loop that was stalled itself judges nobody by that time.
        """
        unsent = self._backlog()
        if unsent < self._unsent or self._loop.time() - self._due > self._stall_s * _LATE_SHARE:
            self._unsent = unsent
            self._watch()
            return
        self._timer = None
        self._why = WriteStalled(f"the peer stopped reading: nothing went out in {self._stall_s:g} s")
        self._transport.abort()
