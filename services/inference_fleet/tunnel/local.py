"""A TCP connection on this machine as a transport that costs little: a worker has one for each stream.

It does what asyncio's own does for a protocol, with a tenth of the objects and no task. All of them read into one
buffer, since each read is used up in the callback that brings it; what the kernel does not take at once is copied,
so a view of that buffer may be written.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

from inference_fleet.tunnel.watermarks import WRITE_HIGH_BYTES, water_marks

if TYPE_CHECKING:
    from collections.abc import Callable

READ_BYTES: Final = 256 * 1024
BUFFER: Final = memoryview(bytearray(READ_BYTES))
_NO_EXTRA: Final[dict[str, Any]] = {}
_RESETS: Final = struct.pack("ii", 1, 0)
"""`struct linger`: a close that waits for nothing is a reset."""
_AGAIN: Final = (BlockingIOError, InterruptedError)
_log = logging.getLogger(__name__)


def begin_connect(host: str, port: int) -> tuple[socket.socket, bool]:
    """A socket on its way to an address of this machine, and whether it has arrived already; raises the kernel's refusal (`OSError`)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, socket.IPPROTO_TCP)
    address = (host, port)
    try:
        sock.connect_ex(address)
        state = sock.connect_ex(address)  # the first says that it has begun, the second how far it is
    except BaseException:
        sock.close()
        raise
    if state and state not in {errno.EALREADY, errno.EINPROGRESS, errno.EISCONN}:
        sock.close()
        raise OSError(state, f"Connect call failed {address}: {os.strerror(state)}")
    return sock, state in {0, errno.EISCONN}


class LocalTransport(asyncio.Transport):
    """A connected, non-blocking stream socket. It reads nothing before `resume_reading`."""

    __slots__ = (
        "_buffered",
        "_closing",
        "_eof",
        "_fd",
        "_high",
        "_loop",
        "_low",
        "_protocol",
        "_reading",
        "_sock",
        "_told",
        "_unsent",
        "_writing_paused",
    )

    def __init__(self, sock: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        """Takes the socket over and calls `connection_made`."""
        super().__init__(extra=_NO_EXTRA)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._fd = sock.fileno()  # a selector asked for a socket it does not know describes that in full
        self._unsent: bytearray | None = None
        self._low, self._high = water_marks(WRITE_HIGH_BYTES, None)
        self._reading = self._closing = self._eof = self._told = self._writing_paused = False
        self.set_protocol(protocol)
        protocol.connection_made(self)

    def __repr__(self) -> str:
        state = "closing" if self._closing else "reading" if self._reading else "paused"
        return f"<LocalTransport fd={self._fd} {state} unsent={self.get_write_buffer_size()}>"

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The socket alone is known."""
        return self._sock if name == "socket" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Whom reads and ends are told from now on."""
        self._protocol = protocol
        self._buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol set last."""
        return self._protocol

    def is_closing(self) -> bool:
        """Closed by us, ended by the peer, or failed."""
        return self._closing

    # ---- reading

    def is_reading(self) -> bool:
        """Whether the kernel is asked for data."""
        return self._reading

    def pause_reading(self) -> None:
        """Leave what comes to the kernel, whose bound stops the peer."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        """Ask for data; nothing comes before the loop's next turn."""
        if not self._reading and not self._closing:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        if not self._reading:
            return
        protocol: Any = self._protocol
        into = self._call(protocol.get_buffer, READ_BYTES) if self._buffered else BUFFER
        if into is None:
            return
        try:
            length = self._sock.recv_into(into)
        except _AGAIN:
            return
        except OSError as error:
            self._end(error)
            return
        if not length:
            self.pause_reading()
            if not self._call(protocol.eof_received):
                self.close()
        elif self._buffered:
            self._call(protocol.buffer_updated, length)
        else:
            self._call(protocol.data_received, bytes(BUFFER[:length]))

    # ---- writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Give it to the kernel; what does not go at once is copied and waits."""
        if self._eof:
            raise RuntimeError("write after write_eof")
        if self._closing or not data:
            return
        if self._unsent is None:
            try:
                sent = self._sock.send(data)
            except _AGAIN:
                sent = 0
            except OSError as error:
                self._end(error)
                return
            if sent == len(data):
                return
            self._unsent = bytearray(memoryview(data)[sent:])
            self._loop.add_writer(self._fd, self._writable)
        else:
            self._unsent += data
        self._pause_writing_if_full()

    def write_eof(self) -> None:
        """Half-close after all that waits."""
        if not self._eof and not self._closing:
            self._eof = True
            if self._unsent is None:
                self._shut()

    def can_write_eof(self) -> bool:
        """TCP can."""
        return True

    def get_write_buffer_size(self) -> int:
        """Bytes the kernel has not taken."""
        return 0 if self._unsent is None else len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Low and high water, in bytes."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As in asyncio: above `high` the protocol is paused, at `low` resumed."""
        self._low, self._high = water_marks(high, low)
        self._pause_writing_if_full()

    def _pause_writing_if_full(self) -> None:
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._call(self._protocol.pause_writing)

    def _writable(self) -> None:
        if self._unsent is None:
            return
        try:
            sent = self._sock.send(self._unsent)
        except _AGAIN:
            return
        except OSError as error:
            self._end(error)
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._unsent = None
            self._loop.remove_writer(self._fd)
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._call(self._protocol.resume_writing)
        if self._unsent is None:
            if self._closing:
                self._end(None)
            elif self._eof:
                self._shut()

    def _shut(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._end(error)

    # ---- ending

    def close(self) -> None:
        """Flush, then close."""
        if not self._closing:
            self.pause_reading()
            self._closing = True
            if self._unsent is None:
                self._end(None)

    def abort(self) -> None:
        """Reset: what waits is dropped, and the other side does not take it for an end of file."""
        self._reset(None)

    def _reset(self, error: Exception | None) -> None:
        if not self._told:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self._told:
            return
        self._told = True
        self.pause_reading()
        if self._unsent is not None:
            self._unsent = None
            self._loop.remove_writer(self._fd)
        self._closing = True
        self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            self._sock.close()

    def _call(self, callback: Callable[..., Any], *args: Any) -> Any:
        try:
            return callback(*args)
        except Exception as error:  # noqa: BLE001  # as every transport: a protocol's bug ends its connection
            _log.exception("a local connection ends: its protocol failed in %s", callback)
            self._reset(error)
            return None
