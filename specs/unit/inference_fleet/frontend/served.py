"""Replicas under their real server, and workers whose tunnel is real and whose model process is scripted."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import httpx2
from specs.unit.inference_fleet.route.piped import TIMINGS, until

from inference_fleet.frontend.replica import open_replica
from inference_fleet.frontend.server import bind, serve_replica
from inference_fleet.settings import FrontendSettings
from inference_fleet.settings.frontend import announced
from inference_fleet.tunnel import Refusal, Session
from inference_fleet.tunnel.worker import SeenEpoch, dial, serve_streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from inference_fleet.frontend.replica import Replica
    from inference_fleet.tunnel import Ending

REGISTRATION = "registration-token"
PASSWORD = "correct horse"
BARE = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Believes nobody: for addresses without TLS, whose clients would else read all authorities of the machine each."""

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Served:
    """One replica that answers at `url`."""

    replica: Replica
    url: str
    told: asyncio.Event
    run: asyncio.Task[int]
    http: httpx2.AsyncClient
    trust: ssl.SSLContext | None = None

    async def admin(self) -> None:
        """Log this replica's client in as the fleet's first user, or as that user again."""
        body = {"email": "admin@example.org", "password": PASSWORD}
        answer = await self.http.post("/api/auth/register", json=body)
        if "session" not in answer.cookies:
            answer = await self.http.post("/api/auth/login", json=body)
        assert "session" in answer.cookies, answer.text

    async def metric(self, name: str) -> float:
        """One sample of `/metrics`, by its full name with labels."""
        lines = (await self.http.get("/metrics")).text.splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


def settings_of(database_url: str, data_dir: Path, **changes: Any) -> FrontendSettings:
    """Settings of one replica of a small cluster."""
    environ = {
        "BLACKSTART_DATABASE_URL": database_url,
        "BLACKSTART_LISTEN": "127.0.0.1:0",
        "BLACKSTART_INSTANCE_ID": "a",
        "BLACKSTART_CLUSTER_SECRET": "cluster-secret",
        "BLACKSTART_REGISTRATION_TOKEN": REGISTRATION,
        "BLACKSTART_AUTH_HMAC_SECRET": "hmac-secret",
        "BLACKSTART_DATA_DIR": str(data_dir),
        "BLACKSTART_EXPOSE_ROUTE": "true",
        "BLACKSTART_TIMINGS": "drill",
    }
    return replace(FrontendSettings.from_environ(environ), **changes)


@contextlib.asynccontextmanager
async def served(
    database_url: str, data_dir: Path, *, trust: ssl.SSLContext | None = None, **changes: Any
) -> AsyncIterator[Served]:
    """A replica under its real server, on a port of the kernel's, told to stop at the end.

    One that speaks TLS is believed by `trust`, else by the authority that it believes its peers by.
    """
    settings = settings_of(database_url, data_dir, **changes)
    with bind(settings) as listening:
        port = listening.getsockname()[1]
        scheme = "http" if settings.tls_cert_file is None else "https"
        if scheme == "https" and trust is None:
            trust = ssl.create_default_context(cafile=settings.peer_ca_file)
        if "advertise_address" not in changes:
            settings = replace(settings, advertise_address=announced(f"127.0.0.1:{port}", scheme=scheme))
        async with open_replica(settings, port=port) as replica:
            told = asyncio.Event()
            run = asyncio.create_task(serve_replica(replica, listening, told))
            url = f"{scheme}://127.0.0.1:{port}"
            async with httpx2.AsyncClient(
                base_url=url, timeout=TIMINGS.start_s, trust_env=False, verify=trust or BARE
            ) as http:
                await until(lambda: _answers(http, run))
                try:
                    yield Served(replica, url, told, run, http, trust)
                finally:
                    await http.aclose()  # who reads nothing leaves the goodbye of TLS without an answer
                    told.set()
                    assert await run == 0


async def _answers(http: httpx2.AsyncClient, run: asyncio.Task[int]) -> bool:
    if run.done():
        await run
    try:
        return (await http.get("/healthz")).status_code == 200
    except httpx2.TransportError:
        return False


@dataclass
class Backend:
    """A model process: a loopback HTTP server whose script decides what each connection sees."""

    script: Script
    port: int = 0
    started: int = 0
    ended: int = 0
    requests: list[bytes] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.started += 1
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (
                    int(line.split(b":")[1])
                    for line in head.lower().split(b"\r\n")
                    if line.startswith(b"content-length")
                ),
                0,
            )
            self.requests.append(head + await reader.readexactly(length))
            await self.script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the caller hung up, which is what some stories are about
        finally:
            self.ended += 1
            writer.close()


@contextlib.asynccontextmanager
async def backend(script: Script) -> AsyncIterator[Backend]:
    """A scripted model process on a loopback port."""
    made = Backend(script)
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


def answer(body: bytes, *, content_type: str = "application/json", status: str = "200 OK") -> Script:
    """A whole answer with its length."""

    async def script(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()

    return script


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


EVENTS_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Say nothing until the caller hangs up."""
    await reader.read()


@dataclass
class Worker:
    """A registered node with a live tunnel."""

    node_id: str
    credential: str
    boot_id: str
    epoch: int
    session: Session
    run: asyncio.Task[Ending]


async def register(
    served: Served, name: str, *, credential: str, boot_id: str, node_type: str = "backend"
) -> httpx2.Response:
    """`POST /api/node/register` as a worker sends it."""
    body = {
        "name": name,
        "node_type": node_type,
        "boot_id": boot_id,
        "credential_sha256": hashlib.sha256(credential.encode()).hexdigest(),
    }
    return await served.http.post(
        "/api/node/register", json=body, headers={"Authorization": f"Bearer {REGISTRATION}"}
    )


async def beat(
    served: Served,
    node_id: str,
    credential: str,
    boot_id: str,
    models: dict[str, Backend],
    *,
    state: str = "ready",
) -> None:
    """One heartbeat that reports model processes in one state."""
    reported = [
        {"name": name, "port": process.port, "process_key": f"{name}#1", "state": state}
        for name, process in models.items()
    ]
    sent = await served.http.post(
        f"/api/node/{node_id}/heartbeat",
        json={"boot_id": boot_id, "models": reported},
        headers={"Authorization": f"Bearer {credential}"},
    )
    assert sent.status_code == 200, sent.text


@contextlib.asynccontextmanager
async def worker(
    served: Served,
    name: str = "worker-0",
    models: dict[str, Backend] | None = None,
    *,
    serving: dict[str, Backend] | None = None,
) -> AsyncIterator[Worker]:
    """A worker with a real tunnel to a replica; `serving` narrows what it answers for below what it reports."""
    reported = models or {}
    credential, boot_id = f"credential of {name}", uuid.uuid4().hex
    registered = await register(served, name, credential=credential, boot_id=boot_id)
    assert registered.status_code == 201, registered.text
    node_id = registered.json()["id"]
    await beat(served, node_id, credential, boot_id, reported)
    beating = asyncio.create_task(_keep_alive(served, node_id))
    answered = reported if serving is None else serving
    try:
        async with tunnel(served, node_id, credential, boot_id, answered) as made:
            yield made
    finally:
        beating.cancel()
        await asyncio.wait([beating])


async def _keep_alive(served: Served, node_id: str) -> None:
    """Stamp the heartbeat as the worker's own loop would, so that a slow machine makes no node stale.

    Only the stamp: what the story reported of its models, and what became of those rows, stays as it is.
    """
    while True:
        await asyncio.sleep(TIMINGS.heartbeat_s)
        query = "UPDATE nodes SET last_heartbeat = clock_timestamp() WHERE id = %(id)s"
        await served.replica.db.change(query, {"id": node_id})


@contextlib.asynccontextmanager
async def tunnel(
    served: Served, node_id: str, credential: str, boot_id: str, serving: dict[str, Backend], *, seen: int = 0
) -> AsyncIterator[Worker]:
    """The tunnel of a registered node, up until the block ends."""
    ports = {f"127.0.0.1:{process.port}": (f"{name}#1", process.port) for name, process in serving.items()}

    def resolve(_tag: str, target: str, process_key: str | None) -> tuple[str, int] | Refusal:
        known = ports.get(target)
        if known is None or known[0] != process_key:
            return Refusal.UNAVAILABLE
        return "127.0.0.1", known[1]

    dialled = await dial(
        served.url,
        node_id=node_id,
        credential=credential,
        boot_id=boot_id,
        seen_epoch=seen,
        timings=TIMINGS,
        ssl=served.trust,
    )
    epochs = SeenEpoch(value=dialled.epoch)
    session = Session(
        dialled.carrier,
        client=True,
        timings=TIMINGS,
        on_stream=serve_streams(node=node_id, seen=epochs, resolve=resolve, timings=TIMINGS),
        name=node_id,
    )
    run = asyncio.create_task(session.run())
    await until(lambda: served.replica.table.get(node_id) is not None or run.done())
    try:
        yield Worker(node_id, credential, boot_id, dialled.epoch, session, run)
    finally:
        await session.close()
        await run
