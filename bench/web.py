"""An HTTP client that costs next to nothing: blocking sockets, one connection, answers with a `Content-Length`."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, Final

from bench import bulk
from bench.backend import BYTES_KEY
from bench.bulk import ContentWrong
from bench.content import content

if TYPE_CHECKING:
    import socket

PATH: Final = "/v1/chat/completions"
_HEAD_LIMIT: Final = 64 * 1024
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*\r\n")


class Refused(RuntimeError):
    """An answer that is no 200, or has no length."""


def request_of(*, model: str, key: str, size: int) -> bytes:
    """A chat request whose answer has `size` bytes."""
    body = json.dumps({"model": model, "messages": [], BYTES_KEY: size}).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def web_transfer(
    *, port: int, model: str, key: str, size: int, hashed: bool, within: float
) -> dict[str, Any]:
    """One large answer on a connection that was used before; when it began and ended (monotonic)."""
    small = request_of(model=model, key=key, size=bulk.SMALL_BYTES)
    large = request_of(model=model, key=key, size=size)
    with bulk.connect(port, within=within) as sock:
        _exchange(sock, small, bulk.SMALL_BYTES)
        began = time.monotonic()
        sock.sendall(large)
        first = _head(sock, size)
        good, digest = bulk.take_content(sock, size, hashed=hashed, first=first)
        ended = time.monotonic()
    if not good or (hashed and digest != content().digest(size)):
        raise ContentWrong(f"an answer of {size} bytes through port {port} came changed")
    return {"began": began, "ended": ended}


def web_probe(*, port: int, model: str, key: str, count: int, within: float) -> list[float]:
    """So many small requests on one kept connection, one after another: the seconds of each."""
    small = request_of(model=model, key=key, size=bulk.SMALL_BYTES)
    seen = []
    with bulk.connect(port, within=within) as sock:
        for _ in range(count):
            began = time.monotonic()
            _exchange(sock, small, bulk.SMALL_BYTES)
            seen.append(time.monotonic() - began)
    return seen


def _exchange(sock: socket.socket, request: bytes, size: int) -> None:
    sock.sendall(request)
    first = _head(sock, size)
    good, _ = bulk.take_content(sock, size, hashed=False, first=first)
    if not good:
        raise ContentWrong(f"an answer of {size} bytes came changed")


def _head(sock: socket.socket, size: int) -> bytes:
    """Read the head of an answer; gives what came of its body with it."""
    heard = bytearray()
    while (end := heard.find(b"\r\n\r\n")) < 0:
        data = sock.recv(_HEAD_LIMIT)
        if not data or len(heard) > _HEAD_LIMIT:
            raise Refused(f"no answer: {bytes(heard[:200])!r}")
        heard += data
    length = _LENGTH.search(heard, 0, end + 2)
    if not heard.startswith(b"HTTP/1.1 200 ") or length is None or int(length[1]) != size:
        raise Refused(f"wanted 200 with {size} bytes, got {bytes(heard[:400])!r}")
    return bytes(heard[end + 4 :])
