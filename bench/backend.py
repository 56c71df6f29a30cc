"""A model process on raw sockets: the far end of every transfer, and just enough HTTP to stand behind `/v1`.

One loop of `epoll` answers what is small; what is bulky gets a thread that blocks. Nothing of it is fast by being
clever, and its CPU seconds are told apart from those of the tunnel.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import socket
import sys
import threading
from dataclasses import dataclass, field
from typing import Final

from bench.bulk import (
    ECHO,
    INFO,
    MAGIC,
    REQUEST_BYTES,
    Broken,
    Reply,
    Request,
    send_content,
    serve_transfer,
)
from bench.content import content
from bench.machine import raise_file_limit

BYTES_KEY: Final = "bench_bytes"
"""The key of a chat body that says how long the answer is to be."""

INLINE_BYTES: Final = 64 * 1024
_BACKLOG: Final = 4096
_LONGEST_HEAD: Final = 64 * 1024
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*\r\n")


@dataclass
class _Caller:
    sock: socket.socket
    heard: bytearray = field(default_factory=bytearray)


class Backend:
    """Serves one listening socket, which is its own from here on."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._poll = select.epoll()
        self._poll.register(listener, select.EPOLLIN)
        self._callers: dict[int, _Caller] = {}
        self._told = os.eventfd(0)
        self._poll.register(self._told, select.EPOLLIN)

    def run(self) -> None:
        """Answer whoever speaks, until `stop`."""
        while True:
            for number, _ in self._poll.poll():
                if number == self._told:
                    self._close()
                    return
                caller = self._callers.get(number)
                if caller is None:
                    self._accept()
                else:
                    self._hear(caller)

    def stop(self) -> None:
        """Have `run` return, from any thread."""
        os.eventfd_write(self._told, 1)

    def _close(self) -> None:
        for caller in self._callers.values():
            caller.sock.close()
        self._poll.close()
        os.close(self._told)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._callers[sock.fileno()] = _Caller(sock)
            self._poll.register(sock, select.EPOLLIN)

    def _hear(self, caller: _Caller) -> None:
        try:
            data = caller.sock.recv(INLINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        caller.heard += data
        try:
            if data:
                self._answer(caller)
            else:
                self._leave(caller)
                caller.sock.close()
        except (OSError, ValueError) as error:
            sys.stderr.write(f"a caller is hung up on: {error!r}\n")
            self._leave(caller)
            caller.sock.close()

    def _leave(self, caller: _Caller) -> None:
        if self._callers.pop(caller.sock.fileno(), None) is not None:
            self._poll.unregister(caller.sock)

    def _answer(self, caller: _Caller) -> None:
        """Everything that is complete; a caller is this loop's until it asks for something bulky."""
        while caller.heard and caller.sock.fileno() in self._callers:
            begins = caller.heard[: len(MAGIC)]
            step = self._framed(caller) if MAGIC.startswith(begins) else self._http(caller)
            if not step:
                return

    def _framed(self, caller: _Caller) -> bool:
        heard = caller.heard
        if len(heard) < REQUEST_BYTES:
            return False
        request = Request.decode(heard)
        if request.op == ECHO:
            end = REQUEST_BYTES + request.size
            if request.size > INLINE_BYTES:
                raise Broken(f"an echo of {request.size} bytes")
            if len(heard) < end:
                return False
            _send_whole(caller.sock, bytes(heard[REQUEST_BYTES:end]))
            del heard[:end]
        elif request.op == INFO:
            _send_whole(caller.sock, Reply(os.getpid()).encode())
            del heard[:REQUEST_BYTES]
        else:
            self._leave(caller)
            rest = bytes(heard[REQUEST_BYTES:])
            threading.Thread(target=_bulk, args=(caller.sock, request, rest), daemon=True).start()
        return True

    def _http(self, caller: _Caller) -> bool:
        heard = caller.heard
        head = heard.find(b"\r\n\r\n") + 4
        if head < 4:
            if len(heard) > _LONGEST_HEAD:
                raise Broken("endless headers")
            return False
        length = _LENGTH.search(heard, 0, head)
        end = head + (int(length[1]) if length else 0)
        if len(heard) < end:
            return False
        size = _wanted(bytes(heard[head:end])) if heard.startswith(b"POST") else 0
        del heard[:end]
        answer = (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {size}\r\n\r\n"
        )
        if size <= INLINE_BYTES:
            _send_whole(caller.sock, answer.encode() + content().at(0, size))
        else:
            self._leave(caller)
            threading.Thread(target=_body, args=(caller.sock, answer.encode(), size), daemon=True).start()
        return True


def _wanted(body: bytes) -> int:
    size = json.loads(body).get(BYTES_KEY, 0)
    if not isinstance(size, int) or size < 0:
        raise Broken(f"{BYTES_KEY}={size!r}")
    return size


def _send_whole(sock: socket.socket, data: bytes) -> None:
    """A small answer fits into the kernel's buffer of a caller that reads."""
    if sock.send(data) != len(data):
        raise Broken(f"a caller does not read {len(data)} bytes")


def _bulk(sock: socket.socket, request: Request, first: bytes) -> None:
    with sock:
        sock.setblocking(True)
        try:
            serve_transfer(sock, request, first)
        except OSError as error:
            sys.stderr.write(f"a transfer broke: {error!r}\n")


def _body(sock: socket.socket, head: bytes, size: int) -> None:
    with sock:
        sock.setblocking(True)
        try:
            sock.sendall(head)
            send_content(sock, size, hashed=False)
            while sock.recv(INLINE_BYTES):
                pass
        except OSError as error:
            sys.stderr.write(f"an answer broke: {error!r}\n")


def main() -> int:
    """`python -m bench.backend --port N`."""
    parser = argparse.ArgumentParser(prog="python -m bench.backend")
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    raise_file_limit()
    content()
    Backend(socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
