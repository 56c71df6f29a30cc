"""The bytes of a bulk transfer on blocking sockets, `sendall` and `recv_into`, and the small frames around them.

| request `op`  | what follows it                  | what is answered                                     |
|---------------|----------------------------------|------------------------------------------------------|
| `ECHO`        | `size` bytes                     | the same bytes                                       |
| `SEND`        | nothing                          | `size` bytes of the content, then a reply            |
| `TAKE`        | `size` bytes of the content      | a reply                                              |
| `INFO`        | nothing                          | a reply whose `count` is the process's pid           |

A hashed transfer is answered with the SHA-256 of what was sent or came; any other with zeros, and each piece of it is
judged by its ends.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import struct
from dataclasses import dataclass
from functools import cache
from typing import Final

from bench.content import CHUNK, content

MAGIC: Final = b"bnch"
ECHO, SEND, TAKE, INFO = 1, 2, 3, 4
SMALL_BYTES: Final = 64
"""The payload of a small request."""

_REQUEST: Final = struct.Struct("!4sBB2xQ")
_REPLY: Final = struct.Struct("!4sB3xQ32s")
REQUEST_BYTES: Final = _REQUEST.size
_TIMEVAL: Final = struct.Struct("@ll")
_NO_DIGEST: Final = bytes(32)


class ContentWrong(AssertionError):
    """What came is not what was sent."""


class Broken(ConnectionError):
    """The other side said something else than this protocol, or nothing more."""


@dataclass(frozen=True)
class Request:
    """What is wanted of the backend."""

    op: int
    size: int = 0
    hashed: bool = False

    def encode(self) -> bytes:
        """Sixteen bytes."""
        return _REQUEST.pack(MAGIC, self.op, self.hashed, self.size)

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Request:
        """From the first sixteen bytes."""
        magic, op, hashed, size = _REQUEST.unpack_from(data)
        if magic != MAGIC or op not in {ECHO, SEND, TAKE, INFO}:
            raise Broken(f"{bytes(data[:REQUEST_BYTES])!r} is no request")
        return cls(op, size, bool(hashed))


@dataclass(frozen=True)
class Reply:
    """What the backend says at the end. `good`: every piece that came was the one meant to come."""

    count: int
    good: bool = True
    digest: bytes = _NO_DIGEST

    def encode(self) -> bytes:
        """Forty-eight bytes."""
        return _REPLY.pack(MAGIC, self.good, self.count, self.digest)


def read_reply(sock: socket.socket) -> Reply:
    """The reply that is due."""
    data = read_exactly(sock, _REPLY.size)
    magic, good, count, digest = _REPLY.unpack(data)
    if magic != MAGIC:
        raise Broken(f"{bytes(data)!r} is no reply")
    return Reply(count, bool(good), digest)


def connect(port: int, *, within: float, cert: str | None = None) -> socket.socket:
    """A blocking connection on the loopback whose every wait ends after `within` seconds, by the kernel's own doing.

    With `cert` it is one over TLS to whoever has that certificate. Python's time-outs would ask `poll` before each piece, which a control must not pay for.
    """
    sock = socket.socket()
    try:
        limit = _TIMEVAL.pack(int(within), int(within % 1 * 1e6))
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, option, limit)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect(("127.0.0.1", port))
        return sock if cert is None else _trusting(cert).wrap_socket(sock, server_hostname="127.0.0.1")
    except BaseException:
        sock.close()
        raise


@cache
def _trusting(cert: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=cert)


def read_exactly(sock: socket.socket, length: int) -> bytearray:
    """So many bytes."""
    data = bytearray(length)
    view, have = memoryview(data), 0
    while have < length:
        count = sock.recv_into(view[have:])
        if not count:
            raise Broken(f"the connection ended after {have} of {length} bytes")
        have += count
    return data


def echo(sock: socket.socket, size: int = SMALL_BYTES) -> None:
    """One small request and its answer."""
    payload = content().at(0, size)
    sock.sendall(Request(ECHO, size).encode() + payload)
    if read_exactly(sock, size) != payload:
        raise ContentWrong(f"an echo of {size} bytes came back changed")


def send_content(sock: socket.socket, size: int, *, hashed: bool) -> bytes:
    """Send the first `size` bytes of the content; gives the digest of what was sent."""
    text, digest = content(), hashlib.sha256()
    sent = 0
    while sent < size:
        piece = text.at(sent, min(CHUNK, size - sent))
        sock.sendall(piece)
        if hashed:
            digest.update(piece)
        sent += len(piece)
    return digest.digest() if hashed else _NO_DIGEST


def take_content(sock: socket.socket, size: int, *, hashed: bool, first: bytes = b"") -> tuple[bool, bytes]:
    """Take `size` bytes, of which `first` came already; whether each piece was the right one, and the digest."""
    text, digest = content(), hashlib.sha256()
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    good, had = True, 0
    for offset in range(0, len(first), CHUNK):
        piece = memoryview(first)[offset : offset + CHUNK]
        good = good and text.agrees(had, piece)
        digest.update(piece)
        had += len(piece)
    while had < size:
        count = sock.recv_into(view, min(CHUNK, size - had))
        if not count:
            raise Broken(f"the connection ended after {had} of {size} bytes")
        piece = view[:count]
        good = good and text.agrees(had, piece)
        if hashed:
            digest.update(piece)
        had += count
    return good, digest.digest() if hashed else _NO_DIGEST


def serve_transfer(sock: socket.socket, request: Request, first: bytes = b"") -> None:
    """The far end of one bulk transfer, of which `first` came already; returns when the caller has hung up."""
    if request.op == SEND:
        digest = send_content(sock, request.size, hashed=request.hashed)
        sock.sendall(Reply(request.size, digest=digest).encode())
    else:
        good, digest = take_content(sock, request.size, hashed=request.hashed, first=first)
        sock.sendall(Reply(request.size, good, digest).encode())
    while sock.recv(CHUNK):  # the caller hangs up first, so that nothing of the answer is lost
        pass
