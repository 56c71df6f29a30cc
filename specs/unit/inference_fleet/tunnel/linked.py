"""A tunnel over a real uvicorn server and a real websockets client, for specs of whatever runs through it."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from blackstart.net.certificates import Authority
from inference_fleet.frontend.listener import guarded_http
from inference_fleet.frontend.tls_door import behind_tls
from inference_fleet.settings import Deadline, Timings
from inference_fleet.tunnel import Ending, Session, dial_websocket
from inference_fleet.tunnel.frontend import AbortableWebSocketProtocol, TakeoverWebSocketProtocol, carrier_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from starlette.websockets import WebSocket

    from inference_fleet.tunnel import Carrier, DirectCarrier, Joint, Limits, Stream

    OnStream = Callable[[Stream], Awaitable[Joint | None]]

TIMINGS = Timings.drill()
PROTOCOL = "blackstart.tunnel.v1"


SERVERS = {"takeover": TakeoverWebSocketProtocol, "asgi": AbortableWebSocketProtocol}
"""What a server offers, by the carrier that comes of it."""
_offered = "takeover"
_secured: Secured | None = None


@dataclass(frozen=True, kw_only=True)
class Secured:
    """What the two ends of a connection have where it is one of TLS."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    @classmethod
    def made(cls, folder: Path, *, host: str = "127.0.0.1", days: int = 2) -> Secured:
        """An authority of the spec's own, and who believes it."""
        authority = Authority(folder)
        shown = authority.issue("replica", hosts=[host], days=days)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(shown.cert, shown.key)
        return cls(server=server, client=ssl.create_default_context(cafile=authority.cert))


@contextmanager
def offering(path: str = "takeover", *, secured: Secured | None = None) -> Iterator[None]:
    """Inside, servers offer what leads to this carrier, over TLS where `secured` is given."""
    global _offered, _secured  # the stories of one module run over each carrier without being told
    before = _offered, _secured
    _offered, _secured = path, secured
    try:
        yield
    finally:
        _offered, _secured = before


@dataclass
class Link:
    """Both ends of one tunnel: `server` is the accepting side (the frontend's), `client` the dialling one."""

    server: Session
    client: Session
    client_carrier: Carrier | DirectCarrier
    server_carrier: Carrier | DirectCarrier
    client_run: asyncio.Task[Ending]
    server_run: asyncio.Future[Ending]


@dataclass
class _Accepted:
    session: asyncio.Future[tuple[Session, Carrier | DirectCarrier]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    ending: asyncio.Future[Ending] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@asynccontextmanager
async def serve(app: Starlette) -> AsyncIterator[str]:
    """A uvicorn server in this loop on a port the kernel chose; gives its `http://` address."""
    config = uvicorn.Config(
        app,
        host="127.0.0.1",
        port=0,
        log_level="warning",
        lifespan="off",
        ws=SERVERS[_offered],
        timeout_graceful_shutdown=max(1, int(TIMINGS.shutdown_s)),
        **_doors(),
    )
    server = uvicorn.Server(config)
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"{'http' if _secured is None else 'https'}://127.0.0.1:{port}"
    finally:
        await server.shutdown()


def _doors() -> dict[str, Any]:
    """Connections of TLS come in by the very door that replicas have."""
    if _secured is None:
        return {}
    made = guarded_http(header_s=TIMINGS.handshake_s)
    parting_s = TIMINGS.keepalive_timeout_s
    return {"http": behind_tls(made, _secured.server, within_s=TIMINGS.handshake_s, parting_s=parting_s)}


@asynccontextmanager
async def linked(
    *,
    on_client_stream: OnStream | None = None,
    on_server_stream: OnStream | None = None,
    timings: Timings = TIMINGS,
    limits: Limits | None = None,
) -> AsyncIterator[Link]:
    """A tunnel whose streams are served by the given handlers; both sessions run until the block ends."""
    accepted = _Accepted()

    async def route(websocket: WebSocket) -> None:
        await websocket.accept(subprotocol=PROTOCOL)
        carrier = carrier_of(websocket, stall_s=timings.write_stall_s)
        assert carrier.path == _offered
        session = Session(
            carrier, client=False, timings=timings, limits=limits, on_stream=on_server_stream, name="front"
        )
        accepted.session.set_result((session, carrier))
        accepted.ending.set_result(await session.run())

    async with serve(Starlette(routes=[WebSocketRoute("/tunnel", route)])) as url:
        carrier, _ = await dial_websocket(
            f"{url}/tunnel",
            subprotocol=PROTOCOL,
            headers={},
            timings=timings,
            ssl=None if _secured is None else _secured.client,
        )
        client = Session(
            carrier, client=True, timings=timings, limits=limits, on_stream=on_client_stream, name="worker"
        )
        run = asyncio.create_task(client.run())
        server, server_carrier = await accepted.session
        try:
            yield Link(server, client, carrier, server_carrier, run, accepted.ending)
        finally:
            await client.close()
            await run
            await accepted.ending


class Collector(asyncio.Protocol):
    """Keeps everything a stream said and how it ended."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.data = bytearray()
        self.eof = loop.create_future()
        self.lost: asyncio.Future[Exception | None] = loop.create_future()
        self.writable = asyncio.Event()
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.eof.set_result(None)
        return True

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable.set()
        if not self.lost.done():
            self.lost.set_result(exc)


async def within(awaitable: Awaitable[object], *, timings: Timings = TIMINGS) -> object:
    """Whatever is awaited, or a failed assertion once every deadline of a live tunnel has passed."""
    limit_s = timings.keepalive_interval_s + timings.keepalive_timeout_s + timings.handshake_s
    try:
        async with asyncio.timeout(limit_s):
            return await awaitable
    except TimeoutError:
        raise AssertionError(f"what was awaited did not come within {limit_s:g} s") from None


async def until(predicate: Callable[[], bool], *, timings: Timings = TIMINGS) -> None:
    """Let the loop run until something is so; a failed assertion once a stream's opening time has passed."""
    try:
        async with asyncio.timeout(timings.stream_open_s):
            while not predicate():  # noqa: ASYNC110  # what is waited for has no event of its own
                await asyncio.sleep(timings.stream_open_s / 1000)
    except TimeoutError:
        raise AssertionError(f"it did not become so within {timings.stream_open_s:g} s") from None


def soon(timings: Timings = TIMINGS) -> Deadline:
    """A deadline as callers have it."""
    return Deadline.after(timings.stream_open_s)
