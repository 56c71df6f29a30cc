"""New connections as fast as they go: connect, one echo, close, so many at once from one loop of `epoll`."""

from __future__ import annotations

import select
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.bulk import ECHO, SMALL_BYTES, ContentWrong, Request, connect
from bench.content import content

if TYPE_CHECKING:
    import socket


class Late(TimeoutError):
    """Connections that did not come to their end in time."""


@dataclass
class _Visit:
    sock: socket.socket
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
                    sock = connect(port, within=within)  # the loopback's kernel answers at once
                    visits[sock.fileno()] = _Visit(sock)
                    sock.sendall(question)
                    poll.register(sock, select.EPOLLIN)
                    begun += 1
                for number, _ in poll.poll(within) or _late(done, count, within):
                    if _heard(visits[number], answer):
                        visits.pop(number).sock.close()
                        done += 1
            return {"seconds": time.monotonic() - start}
        finally:
            for visit in visits.values():
                visit.sock.close()


def _heard(visit: _Visit, answer: bytes) -> bool:
    data = visit.sock.recv(len(answer))
    visit.heard += data
    if not data or not answer.startswith(visit.heard):
        raise ContentWrong(f"an echo on a new connection ended as {bytes(visit.heard)!r}")
    return len(visit.heard) == len(answer)


def _late(done: int, count: int, within: float) -> list[tuple[int, int]]:
    raise Late(f"{done} of {count} new connections had their answer, and for {within:g} s no other had")
