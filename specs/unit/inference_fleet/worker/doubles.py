"""A frontend that does what a story tells it, over real HTTP and real tunnels."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

from inference_fleet.backends.serving import QuietServer, listen
from inference_fleet.roster.wire import Heartbeat, Registration
from inference_fleet.settings import Deadline, Timings, WorkerSettings
from inference_fleet.settings.loopback import LOOPBACK
from inference_fleet.tunnel import Session, StreamRequest, request_stream
from inference_fleet.tunnel.frontend import AbortableWebSocketProtocol, AsgiCarrier
from inference_fleet.worker.ports import PortBlock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from starlette.requests import Request
    from starlette.websockets import WebSocket

    from inference_fleet.tunnel import Stream
    from inference_fleet.worker.children import Child

TIMINGS = Timings.drill()
NODE = "node-1"
TOKEN = "registration-token"


def error(status: int, code: str, message: str = "no", **headers: str) -> Response:
    body = {"error": {"message": message, "type": "spec", "code": code}}
    return JSONResponse(
        body, status, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


@dataclass
class Frontend:
    """What it was asked, in `order` and one by one, and what it answers next; an empty queue answers with success."""

    url: str = ""
    registrations: list[Registration] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    heartbeats: list[Heartbeat] = field(default_factory=list)
    bearers: list[str] = field(default_factory=list)
    dials: list[Mapping[str, str]] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    registering: deque[Response] = field(default_factory=deque)
    beating: deque[Response] = field(default_factory=deque)
    dialling: deque[Response] = field(default_factory=deque)
    epoch: int = 0
    order: list[str] = field(default_factory=list)
    silent: bool = False

    async def register(self, request: Request) -> Response:
        self.order.append("register")
        self.bodies.append(await request.body())
        self.registrations.append(msgspec.json.decode(self.bodies[-1], type=Registration))
        self.bearers.append(request.headers["authorization"])
        if self.registering:
            return self.registering.popleft()
        known = self.registrations[-1]
        body = {
            "id": NODE,
            "name": known.name,
            "node_type": known.node_type,
            "status": "healthy",
            "created_at": "now",
        }
        return JSONResponse(body, 201)

    async def heartbeat(self, request: Request) -> Response:
        assert request.path_params["node"] == NODE
        self.order.append("heartbeat")
        self.heartbeats.append(msgspec.json.decode(await request.body(), type=Heartbeat))
        self.bearers.append(request.headers["authorization"])
        return self.beating.popleft() if self.beating else JSONResponse({})

    async def tunnel(self, websocket: WebSocket) -> None:
        self.order.append("dial")
        self.dials.append(websocket.headers)
        while self.silent and (await websocket.receive())["type"] != "websocket.disconnect":
            pass  # the dial is never answered; it ends when its caller gives up
        if self.silent:
            return
        if self.dialling:
            await websocket.send_denial_response(self.dialling.popleft())
            return
        self.epoch += 1
        epoch = str(self.epoch).encode()
        await websocket.accept("blackstart.tunnel.v1", headers=[(b"x-blackstart-epoch", epoch)])
        session = Session(
            AsgiCarrier(websocket), client=False, timings=TIMINGS, name=f"frontend {self.epoch}"
        )
        self.sessions.append(session)
        await session.run()

    async def stream(
        self, tag: str, target: str = "", process_key: str | None = None, *, epoch: int = 0
    ) -> Stream:
        """A stream past its handshake on the newest tunnel."""
        request = StreamRequest(
            tag=tag, target=target, process_key=process_key, node=NODE, epoch=epoch or self.epoch
        )
        return await request_stream(
            self.sessions[-1], request, deadline=Deadline.after(TIMINGS.stream_open_s)
        )


@asynccontextmanager
async def frontend() -> AsyncIterator[Frontend]:
    double = Frontend()
    app = Starlette(
        routes=[
            Route("/api/node/register", double.register, methods=["POST"]),
            Route("/api/node/{node}/heartbeat", double.heartbeat, methods=["POST"]),
            WebSocketRoute("/api/node/{node}/tunnel", double.tunnel),
        ]
    )
    config = uvicorn.Config(
        app,
        ws=AbortableWebSocketProtocol,
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
    )
    server = QuietServer(config)
    with listen(LOOPBACK, 0) as listener:
        double.url = f"http://{LOOPBACK}:{listener.getsockname()[1]}"
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield double
        finally:
            await asyncio.gather(*(session.close() for session in double.sessions))
            server.should_exit = server.force_exit = True
            await serving


async def until(condition: Callable[[], Any], *, within_s: float = TIMINGS.backend_start_s) -> None:
    """Wait for a condition; the limit is only what a hung spec costs."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what is awaited happens in other processes
            await asyncio.sleep(TIMINGS.backend_poll_s)


@dataclass
class Home:
    """The folders, ports and environment of one worker."""

    root: Path
    url: str
    base: int = 0

    def __post_init__(self) -> None:
        self.base = self.base or free_block()
        (self.root / "models").mkdir(exist_ok=True)

    def model(self, name: str, text: str = 'backend = "babbler"') -> None:
        (self.root / "models" / name).mkdir()
        (self.root / "models" / name / "model.toml").write_text(text)

    def environ(self, **extra: str) -> dict[str, str]:
        """`BLACKSTART_*` variables, `extra` without the prefix."""
        ours = {
            "TIMINGS": "drill",
            "FRONTEND_URLS": self.url,
            "NODE_NAME": "w0",
            "REGISTRATION_TOKEN": TOKEN,
            "MODELS_DIR": str(self.root / "models"),
            "DATA_DIR": str(self.root / "data"),
            "PORT_BASE": str(self.base),
            "PORT_MAX": str(self.base + 8),
        }
        return {f"BLACKSTART_{name}": value for name, value in (ours | extra).items()}

    def settings(self, **extra: str) -> WorkerSettings:
        return WorkerSettings.from_environ(self.environ(**extra))


def free_block() -> int:
    """The second of ten free ports below the ephemeral range; other specs of this machine start elsewhere."""
    start = 21_000 + (os.getpid() * 37) % 900 * 10
    block = PortBlock(start, 32_000)
    first = block.take()
    taken = [first]
    while len(taken) < 10:
        port = block.take()
        taken = [*taken, port] if port == taken[-1] + 1 else [port]
    return taken[1]


async def stopped(child: Child) -> str:
    """End a child gently and say how it ended."""
    await child.stop(deadline=Deadline.after(TIMINGS.shutdown_s))
    return child.ending
