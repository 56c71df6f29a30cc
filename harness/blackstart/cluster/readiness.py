"""Waiting until a fresh process is ready, and saying at once when it never will be.

The pause between two looks is a wait on the process itself, so a crash before ready is reported the moment it happens,
with its exit status and the end of its log, and never as a time-out.
"""

from __future__ import annotations

import http.client
import re
import socket
import ssl
import time
from typing import TYPE_CHECKING, assert_never

from blackstart.core.topology import CallReady, HttpReady, LogReady, TcpReady

if TYPE_CHECKING:
    from collections.abc import Callable

    from blackstart.core.topology import Place, Ready
    from blackstart.process import Handle

_LOOK_EVERY_S = 0.02
_ANSWER_WITHIN_S = 2.0
_REPLY_LIMIT = 64 * 1024


class NodeNotReady(AssertionError):
    """The process ended before it was ready, or was not ready in time."""


class StartCancelled(RuntimeError):
    """The cluster is being closed; a start that was under way is given up."""


def wait_ready(
    place: Place,
    handle: Handle,
    ready: Ready,
    *,
    within: float,
    cancelled: Callable[[], bool] = lambda: False,
) -> None:
    """Return when `ready` holds; raise `NodeNotReady` at the process's end or after `within` seconds."""
    deadline = time.monotonic() + within
    looks = 0
    last = "nothing yet"
    while True:
        if not handle.alive:
            raise NodeNotReady(f"{place.name}: ended before it was ready ({ready})\n{handle.crash_report()}")
        if cancelled():
            raise StartCancelled(f"{place.name}: start given up, the cluster is closing")
        looks += 1
        held, last = look(place, handle, ready)
        if held:
            return
        if time.monotonic() >= deadline:
            raise NodeNotReady(
                f"{place.name}: not ready within {within:g} s ({ready}; {looks} looks; last: {last}); "
                f"try: a larger 'ready' budget, or read its log\n{handle.crash_report()}"
            )
        handle.wait(within=_LOOK_EVERY_S)


def look(place: Place, handle: Handle, ready: Ready) -> tuple[bool, str]:
    """One look: whether it is ready, and what was seen."""
    try:
        match ready:
            case HttpReady():
                return _http(place, ready)
            case TcpReady():
                return _tcp(place, ready)
            case LogReady():
                found = re.search(ready.pattern, handle.log.path.read_text(errors="replace"))
                return found is not None, "no such line"
            case CallReady():
                return ready.probe(place), "it said no"
            case _:  # pragma: no cover - the union is closed
                assert_never(ready)
    except (OSError, http.client.HTTPException) as wrong:
        return False, repr(wrong)


def _http(place: Place, ready: HttpReady) -> tuple[bool, str]:
    connection = _connection(place.host, place.ports[ready.port], ready)
    try:
        connection.request("GET", ready.path)
        answer = connection.getresponse()
        body = answer.read(_REPLY_LIMIT)
    finally:
        connection.close()
    return answer.status == ready.status, f"{answer.status} {body[:200]!r}"


def _connection(host: str, port: int, ready: HttpReady) -> http.client.HTTPConnection:
    if not ready.ca_file:
        return http.client.HTTPConnection(host, port, timeout=_ANSWER_WITHIN_S)
    trust = ssl.create_default_context(cafile=ready.ca_file)
    return http.client.HTTPSConnection(host, port, timeout=_ANSWER_WITHIN_S, context=trust)


def _tcp(place: Place, ready: TcpReady) -> tuple[bool, str]:
    with socket.create_connection(
        (place.host, place.ports[ready.port]), timeout=_ANSWER_WITHIN_S
    ) as connection:
        if ready.send:
            connection.sendall(ready.send)
        seen = b""
        while ready.expect not in seen and len(seen) < _REPLY_LIMIT and (more := connection.recv(4096)):
            seen += more
    return ready.expect in seen, f"{seen[:200]!r}"
