"""A replica as production serves it, in a process that has doors, further listeners and a control port besides.

| listener          | serves                                                                                        |
|-------------------|-----------------------------------------------------------------------------------------------|
| `BLACKSTART_LISTEN` | the production server, untouched: requests, and with carrier `takeover` tunnels and peers    |
| `--plain-port`    | the same application without what the server offers beyond ASGI: tunnels and peers of `asgi`  |
| `--tls-port`      | the same application over TLS, with or without that offer                                     |
| `--door PORT:MODEL` | raw TCP, spliced to the process that serves the model                                       |
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from bench.door import Door
from bench.machine import own_bytes, raise_file_limit
from bench.remote import answering
from inference_fleet.frontend.app import build_app
from inference_fleet.frontend.listener import uvicorn_options
from inference_fleet.frontend.replica import open_replica
from inference_fleet.frontend.server import bind, serve_replica
from inference_fleet.route import StreamParts
from inference_fleet.settings import Deadline, FrontendSettings
from inference_fleet.settings.loading import kept_for_life
from inference_fleet.telemetry.logs import configure_logs
from inference_fleet.tunnel import TAG_BACKEND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send

    from bench.remote import AsyncCalls
    from inference_fleet.frontend.replica import Replica
    from inference_fleet.tunnel import Stream

_PLAIN_ASGI: Final = frozenset({"blackstart.abort", "websocket.http.response"})
_AT_ONCE: Final = 16
_BACKLOG: Final = 1024


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def only_asgi(app: ASGIApp) -> ASGIApp:
    """The application under a server that offers nothing but ASGI messages and a way to drop the connection."""

    async def withheld(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            offered = scope.get("extensions") or {}
            kept = {name: value for name, value in offered.items() if name in _PLAIN_ASGI}
            scope = {**scope, "extensions": kept}
        await app(scope, receive, send)

    return withheld


class Control:
    """What the bench asks of a replica from outside."""

    def __init__(self, replica: Replica, doors: list[Door]) -> None:
        self._replica = replica
        self._doors = {door.model: door for door in doors}
        self._held: list[Stream] = []

    def calls(self) -> AsyncCalls:
        """By name."""
        return {
            "hello": self.hello,
            "candidate": self.candidate,
            "routes": self.routes,
            "settle": self.settle,
            "hold": self.hold,
        }

    async def hello(self) -> dict[str, str]:
        """Which event loop this runs on."""
        kind = type(asyncio.get_running_loop())
        return {"loop": f"{kind.__module__}.{kind.__qualname__}"}

    async def candidate(self, *, model: str) -> dict[str, Any] | None:
        """The process behind a door, or None while nobody serves its model or no tunnel leads there."""
        try:
            found = await self._doors[model].candidate()
        except LookupError:
            return None
        if await self._replica.registry.owner(found.node_id) is None:
            return None
        return {"node": found.node_id, "port": found.port, "key": found.process_key}

    async def routes(self, *, model: str) -> dict[str, int]:
        """How many streams went which way through a door."""
        return dict(self._doors[model].routes)

    async def settle(self) -> int:
        """Collect garbage, then say how much memory this process has of its own."""
        gc.collect()
        return own_bytes(os.getpid())

    async def hold(self, *, nodes: list[str], each: int, port: int) -> int:
        """Open streams that say nothing, so many to each node, and keep them; how many are held now."""
        async with asyncio.TaskGroup() as group:
            places = asyncio.Semaphore(_AT_ONCE)
            for node in nodes:
                for _ in range(each):
                    group.create_task(self._hold_one(node, port, places))
        return len(self._held)

    async def _hold_one(self, node: str, port: int, places: asyncio.Semaphore) -> None:
        parts = StreamParts(tag=TAG_BACKEND, target=f"127.0.0.1:{port}", process_key="bench")
        async with places:
            deadline = Deadline.after(self._replica.settings.timings.request_s)
            opened = await self._replica.dialer.open(node, parts, deadline=deadline)
        self._held.append(opened.stream)


async def serve(settings: FrontendSettings, options: argparse.Namespace) -> int:
    """Run until SIGTERM."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    with bind(settings) as listening:
        async with open_replica(settings, port=listening.getsockname()[1]) as replica:
            doors = [(int(port), Door(replica, model=model)) for port, model in options.door]
            app: ASGIApp = build_app(replica)
            if options.carrier == "asgi":
                app = only_asgi(app)
            async with contextlib.AsyncExitStack() as stack:
                group = await stack.enter_async_context(asyncio.TaskGroup())
                control = Control(replica, [door for _, door in doors])
                await stack.enter_async_context(answering(options.control_port, control.calls()))
                for port, door in doors:
                    stack.callback(door.open(port))
                servers = {options.plain_port: _server(app, replica, {})}
                if options.cert:
                    secured = {"ssl_certfile": options.cert, "ssl_keyfile": options.key}
                    servers[options.tls_port] = _server(app, replica, secured)
                for port, server in servers.items():
                    sock = stack.enter_context(_listener(port))
                    group.create_task(server.serve([sock]), name=f"listener {port}")
                code = await serve_replica(replica, listening, told)
                for server in servers.values():
                    server.should_exit = True
    return code


def _listener(port: int) -> socket.socket:
    """As production binds: with the protocol named, or asyncio leaves the delays of Nagle's algorithm on."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.listen(_BACKLOG)
    return sock


def _server(app: ASGIApp, replica: Replica, more: dict[str, Any]) -> _Server:
    timings = replica.settings.timings
    options = uvicorn_options(
        header_s=timings.handshake_s, idle_s=timings.http_idle_s, parting_s=timings.keepalive_timeout_s
    )
    return _Server(uvicorn.Config(app, lifespan="off", **options, **more))


def main() -> int:
    """`python -m bench.frontend ...`, configured like a replica by `BLACKSTART_*` variables."""
    parser = argparse.ArgumentParser(prog="python -m bench.frontend")
    parser.add_argument("--carrier", choices=("asgi", "takeover"), required=True)
    for name in ("--plain-port", "--tls-port", "--control-port"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("--cert", default="", help="without one there is no listener with TLS")
    parser.add_argument("--key", default="")
    parser.add_argument("--door", action="append", default=[], type=lambda text: text.split(":", 1))
    options = parser.parse_args()
    raise_file_limit()
    with kept_for_life():  # as production does it around what it loads
        settings = FrontendSettings.from_environ(os.environ)
    configure_logs(instance=settings.instance_id, secrets=[settings.cluster_secret, settings.database_url])
    return asyncio.run(serve(settings, options))


if __name__ == "__main__":
    sys.exit(main())
