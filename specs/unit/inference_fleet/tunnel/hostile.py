"""A raw peer that says anything on a real connection, beside an honest session of the same process, and what each saw.

Both share one event loop with the server, the raw peer writes from a thread. How an honest caller fares is told in
processor time of the loop's thread from its question to its answer: what was done for others meanwhile, whoever else
the machine runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import psutil
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from inference_fleet.settings import Deadline
from inference_fleet.tunnel import (
    FrameMalformed,
    HandshakeBroken,
    Limits,
    Refusal,
    Session,
    dial_websocket,
    read_frame,
    write_frame,
)
from inference_fleet.tunnel.frontend import carrier_of
from inference_fleet.tunnel.websocket import (
    Closed,
    FrameReader,
    Opcode,
    Piece,
    close_payload,
    frame_head,
    opened,
)
from inference_fleet.tunnel.worker import SeenEpoch, serve_streams

from .linked import PROTOCOL, TIMINGS, serve

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from starlette.websockets import WebSocket

    from inference_fleet.tunnel import Ending, Joint, Stream
    from inference_fleet.tunnel.websocket import Told

LIMIT_S: Final = TIMINGS.request_s
"""For anything at all, however busy the machine is; what is fast enough is judged in processor time."""
PATIENT: Final = replace(
    TIMINGS, keepalive_interval_s=LIMIT_S, keepalive_timeout_s=LIMIT_S, stream_header_s=LIMIT_S
)
IMPATIENT: Final = replace(PATIENT, stream_header_s=TIMINGS.backend_poll_s)
FAIR_SHARE: Final = 1 / 20
"""Of the time a stream may take to open: so much may be done for others while one small request waits."""
FAIR_RATIO: Final = 10.0
"""Or so many times what the worst request of the same run cost while nobody attacked."""
GROWTH_BYTES: Final = 32 * 1024 * 1024
_KEY: Final = bytes(4)
_RECEIVE_BYTES: Final = 64 * 1024
_FEW_FRAMES: Final = 64
_QUESTIONS: Final = 12


class Attacker:
    """The dialling end of one WebSocket, by hand and blocking. It may be hung up on at any time."""

    def __init__(self, port: int) -> None:
        self.heard = bytearray()
        self.closed: tuple[int, str] | None = None
        self._reader = FrameReader(masked=False)
        self._sock = socket.socket()
        self._sock.settimeout(LIMIT_S)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.connect(("127.0.0.1", port))

    def dial(self, path: str, *, step: int = 1 << 16) -> None:
        """The handshake, so many bytes at a time."""
        request = (
            f"GET {path} HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
        ).encode()
        for at in range(0, len(request), step):
            self._sock.sendall(request[at : at + step])
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            byte = self._sock.recv(1)
            assert byte, f"no upgrade: {answer!r}"
            answer += byte
        assert answer.startswith(b"HTTP/1.1 101"), answer

    def put(self, data: bytes) -> None:
        """Bytes as they are; `ConnectionError` once the other end has hung up."""
        self._sock.sendall(data)

    def say(self, *said: bytes, opcode: Opcode = Opcode.BINARY) -> None:
        """One whole WebSocket frame. Its key is zero, which leaves bytes as they are."""
        body = b"".join(said)
        self.put(frame_head(opcode, len(body), _KEY) + body)

    def hear(self) -> bool:
        """One read; False at the end of the connection."""
        data = self._sock.recv(_RECEIVE_BYTES)
        for told in self._read(data):
            if isinstance(told, Piece):
                self.heard += opened(told.data, told.key)
            elif isinstance(told, Closed):
                self.closed = told.code, told.reason
                self.say(close_payload(told.code, ""), opcode=Opcode.CLOSE)
        return bool(data)

    def _read(self, data: bytes) -> Iterator[Told]:
        for at in range(0, len(data), _FEW_FRAMES):
            self._reader.second_passed()  # what is sent to it without payload was asked for
            yield from self._reader.receive(memoryview(data)[at : at + _FEW_FRAMES])

    def hear_until(self, enough: Callable[[bytes], bool]) -> None:
        """Read until all that was heard is enough."""
        while not enough(bytes(self.heard)):
            assert self.hear(), f"hung up on after {len(self.heard)} bytes, closed as {self.closed}"

    def leave(self) -> None:
        """Say goodbye unless the other end was first, hear it out and hang up."""
        with self._sock, contextlib.suppress(ConnectionError):
            if self.closed is None:
                self.say(close_payload(1000, ""), opcode=Opcode.CLOSE)
            while self.hear():
                pass


@dataclass(frozen=True, kw_only=True)
class Attack:
    """What is said, and how the session it is said to has to end."""

    says: Callable[[Attacker], None]
    ends: str
    """Words of the session's ending."""
    close: tuple[int, str] | None = None
    """The close frame the attacker has to hear, where it can be sure to."""
    limits: Limits = field(default_factory=Limits)
    worker: bool = False
    """Whether the worker's own code serves its streams, impatiently."""
    step: int = 1 << 16
    """Bytes of the handshake at a time."""


@dataclass
class Fared:
    """How a caller fared: processor seconds of the loop within the dearest of its requests."""

    requests: int = 0
    worst_cpu_s: float = 0.0


@dataclass
class Siege:
    """What was seen of one attack."""

    ending: Ending
    heard_close: tuple[int, str] | None
    idle: Fared
    attacked: Fared
    grown_bytes: int
    tasks_left: int
    still_connected: bool

    @property
    def fair(self) -> bool:
        """Whether the honest caller was let wait for no more than a fair share of others' work."""
        bound_s = max(FAIR_RATIO * self.idle.worst_cpu_s, FAIR_SHARE * TIMINGS.stream_open_s)
        return self.attacked.worst_cpu_s <= bound_s


async def siege(attack: Attack) -> Siege:
    """Play an attack on one session while another is in use."""
    sessions: dict[str, Session] = {}
    endings = {"honest": _pending(), "hostile": _pending()}

    async def route(websocket: WebSocket) -> None:
        name = websocket.path_params["name"]
        await websocket.accept(subprotocol=PROTOCOL)
        timings = IMPATIENT if attack.worker and name == "hostile" else PATIENT
        session = Session(
            carrier_of(websocket, stall_s=timings.write_stall_s),
            client=False,
            timings=timings,
            limits=attack.limits if name == "hostile" else None,
            on_stream=_worker(timings.stream_header_s) if timings is IMPATIENT else _answer,
            name=name,
        )
        sessions[name] = session
        endings[name].set_result(await session.run())

    async with serve(Starlette(routes=[WebSocketRoute("/{name}", route)])) as url, _honest(url) as honest:
        await _ask(honest)
        idle = await _fare(honest, asyncio.sleep(0))
        tasks, before = len(asyncio.all_tasks()), psutil.Process().memory_info().rss
        attacker = Attacker(int(url.rpartition(":")[2]))
        attacked = await _fare(honest, asyncio.to_thread(_play, attacker, attack))
        async with asyncio.timeout(LIMIT_S):
            ending = await endings["hostile"]
            while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110  # tasks that end have no event in common
                await asyncio.sleep(TIMINGS.backend_poll_s)
        assert sessions["hostile"].streams_open == 0
        return Siege(
            ending=ending,
            heard_close=attacker.closed,
            idle=idle,
            attacked=attacked,
            grown_bytes=psutil.Process().memory_info().rss - before,
            tasks_left=len(asyncio.all_tasks()) - tasks,
            still_connected=honest.connected and sessions["honest"].connected,
        )


def _play(attacker: Attacker, attack: Attack) -> None:
    attacker.dial("/hostile", step=attack.step)
    with contextlib.suppress(ConnectionError):
        attack.says(attacker)
        while attack.close is not None and attacker.closed is None and attacker.hear():
            pass
    attacker.leave()


def _pending() -> asyncio.Future[Ending]:
    return asyncio.get_running_loop().create_future()


@contextlib.asynccontextmanager
async def _honest(url: str) -> AsyncIterator[Session]:
    carrier, _ = await dial_websocket(f"{url}/honest", subprotocol=PROTOCOL, headers={}, timings=PATIENT)
    session = Session(carrier, client=True, timings=PATIENT, name="honest caller")
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0)
    try:
        yield session
    finally:
        await session.close()
        await running


async def _fare(session: Session, meanwhile: Awaitable[None]) -> Fared:
    """Ask small questions, one after the other, until `meanwhile` is over and some more."""
    running, fared = asyncio.ensure_future(meanwhile), Fared()
    while fared.requests < _QUESTIONS or not running.done():
        began = time.thread_time()
        await _ask(session)
        fared.worst_cpu_s = max(fared.worst_cpu_s, time.thread_time() - began)
        fared.requests += 1
    await running
    return fared


async def _ask(session: Session) -> None:
    stream = session.open_stream()
    write_frame(stream, b"a small question")
    assert await read_frame(stream, deadline=Deadline.after(LIMIT_S)) == b"a small question"
    stream.close()


async def _answer(stream: Stream) -> None:
    """Give one frame back and use up all that follows."""
    try:
        write_frame(stream, await read_frame(stream, deadline=Deadline.after(LIMIT_S)))
    except (HandshakeBroken, FrameMalformed):
        stream.close()
        return
    drain = _Drain()
    stream.set_protocol(drain)
    await drain.over.wait()


class _Drain(asyncio.Protocol):
    def __init__(self) -> None:
        self.over = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.over.set()


def _worker(header_s: float) -> Callable[[Stream], Awaitable[Joint | None]]:
    return serve_streams(
        node="worker-0",
        seen=SeenEpoch(),
        resolve=lambda *_: Refusal.UNAVAILABLE,
        timings=replace(PATIENT, stream_header_s=header_s),
    )
