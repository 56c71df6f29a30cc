"""New connections as fast as they go: connect, one echo, close, so many at once from one loop of `epoll`."""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from dataclasses import dataclass, field
from typing import Final

from bench.bulk import ECHO, SMALL_BYTES, ContentWrong, Request
from bench.content import content

_CONNECTING: Final = frozenset({0, errno.EINPROGRESS})


class Late(TimeoutError):
    """Connections that did not come to their end in time."""


@dataclass
class _Visit:
    sock: socket.socket
    sent: bool = False
    heard: bytearray = field(default_factory=bytearray)


def churn(*, port: int, count: int, at_once: int, within: float) -> dict[str, float]:
    """`count` connections to a port, `at_once` at a time; gives the seconds from the first connect to the last close."""
    question = Request(ECHO, SMALL_BYTES).encode() + content().at(0, SMALL_BYTES)
    answer = bytes(content().at(0, SMALL_BYTES))
    visits: dict[int, _Visit] = {}
    begun = done = 0
    with select.epoll() as poll:
        start = time.monotonic()
        try:
            while done < count:
                while begun < count and len(visits) < at_once:
                    _begin(port, visits, poll)
                    begun += 1
                for number, _ in poll.poll(within) or _late(done, count, within):
                    visit = visits[number]
                    if not visit.sent:
                        _speak(visit, question, poll)
                    elif _heard(visit, answer):
                        visit.sock.close()
                        del visits[number]
                        done += 1
            return {"seconds": time.monotonic() - start}
        finally:
            for visit in visits.values():
                visit.sock.close()


def _begin(port: int, visits: dict[int, _Visit], poll: select.epoll) -> None:
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    visits[sock.fileno()] = _Visit(sock)
    number = sock.connect_ex(("127.0.0.1", port))
    if number not in _CONNECTING:
        raise OSError(number, f"port {port}: {os.strerror(number)}")
    poll.register(sock, select.EPOLLOUT)


def _speak(visit: _Visit, question: bytes, poll: select.epoll) -> None:
    number = visit.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise OSError(number, f"a new connection: {os.strerror(number)}")
    visit.sock.send(question)
    visit.sent = True
    poll.modify(visit.sock, select.EPOLLIN)


def _heard(visit: _Visit, answer: bytes) -> bool:
    data = visit.sock.recv(len(answer))
    visit.heard += data
    if not data or not answer.startswith(visit.heard):
        raise ContentWrong(f"an echo on a new connection ended as {bytes(visit.heard)!r}")
    return len(visit.heard) == len(answer)


def _late(done: int, count: int, within: float) -> list[tuple[int, int]]:
    raise Late(f"{done} of {count} new connections had their answer, and for {within:g} s no other had")
