"""Tunnels and peer links have their transports for themselves; under a server that keeps them, they work through ASGI."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until
from starlette.websockets import WebSocket

from inference_fleet.frontend.listener import TunnelWebSocket
from inference_fleet.frontend.tunnel_route import SUBPROTOCOL
from inference_fleet.tunnel.frontend import TakeoverWebSocketProtocol
from inference_fleet.tunnel.websocket import Opcode, frame_head, opened
from inference_fleet.tunnel.yamux.wire import PING, SYN, pack

from .served import answer, backend, register, served, worker

if TYPE_CHECKING:
    from pathlib import Path

    from .served import Served

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
REPLY = json.dumps({"choices": [{"message": {"content": "hello yourself" * 1000}}]}).encode()
T = TypeVar("T")
KEY = b"\x01\x02\x03\x04"
BOOT = "boot-of-a-spec"


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What passes ASGI after each handshake, by message type."""
    counted: Counter[str] = Counter()
    receive, send = TunnelWebSocket.receive, TunnelWebSocket.send

    async def counting_receive(self: TunnelWebSocket) -> Any:
        message = await receive(self)
        counted[message["type"]] += 1
        return message

    async def counting_send(self: TunnelWebSocket, message: Any) -> None:
        counted[message["type"]] += 1
        await send(self, message)

    monkeypatch.setattr(TunnelWebSocket, "receive", counting_receive)
    monkeypatch.setattr(TunnelWebSocket, "send", counting_send)
    return counted


def tasks_of_requests() -> list[str]:
    """The server's tasks that still run a WebSocket's route."""
    return [
        str(task)
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__qualname__", "") == "WebSocketsSansIOProtocol.run_asgi"
    ]


async def chat_both_ways(url: str, tmp_path: Path, *, path: str) -> list[str]:
    """A local and a relayed chat over links of the kind named; gives what was left of their requests meanwhile."""
    of_others: list[Any] = [
        *living(WebSocket),
        *living(TunnelWebSocket),
    ]  # what a spec before left to the collector
    async with (
        backend(answer(REPLY)) as process,
        served(url, tmp_path) as owner,
        served(url, tmp_path, instance_id="b") as other,
        worker(owner, models={"m": process}),
    ):
        await owner.admin()
        await other.admin()
        for front in (owner, other):
            assert (await front.http.post("/v1/chat/completions", json=ASK)).content == REPLY
        assert await owner.metric(f'blackstart_tunnel_carrier{{path="{path}"}}') == 1
        assert await owner.metric("blackstart_peer_links") == 1
        gc.collect()
        now: list[Any] = [*living(WebSocket), *living(TunnelWebSocket)]
        left = [
            f"{type(thing).__name__} of {thing.scope['path']}"
            for thing in now
            if all(thing is not other for other in of_others)
        ]
        return left + tasks_of_requests()


def test_after_the_handshake_nothing_of_its_request_is_left_and_no_byte_passes_asgi(
    url: str, tmp_path: Path, passing: Counter[str]
) -> None:
    left = asyncio.run(chat_both_ways(url, tmp_path, path="takeover"))
    assert left == [], f"left of requests that are over: {left}"
    assert set(passing) == {"websocket.connect", "websocket.accept"}


def test_under_a_server_that_keeps_its_transports_the_same_goes_through_asgi(
    url: str, tmp_path: Path, passing: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TakeoverWebSocketProtocol, "give_away", lambda _self: None)
    left = asyncio.run(chat_both_ways(url, tmp_path, path="asgi"))
    assert len(set(left)) == 6, "the tunnel and the peer link: a request, its task and its protocol each"
    assert passing["websocket.receive"] > 0
    assert passing["websocket.send"] > 0


@pytest.mark.parametrize("before", [0, 9, 18], ids=["after", "half with", "with"])
def test_a_dialler_that_speaks_before_it_was_answered_is_heard_through_asgi(
    url: str, tmp_path: Path, before: int
) -> None:
    """Its words lie in the library that read the handshake, whose reading cannot be taken over.

    `before` of its bytes come in one piece with the request's headers.
    """

    async def story() -> None:
        async with served(url, tmp_path) as front:
            node = (await register(front, "worker-0", credential="c", boot_id=BOOT)).json()["id"]
            claim, asked, go = front.replica.registry.claim, asyncio.Event(), asyncio.Event()

            async def late_claim(*args: Any, **options: Any) -> Any:
                asked.set()
                await go.wait()
                return await claim(*args, **options)

            front.replica.registry.claim = late_claim  # type: ignore[method-assign]  # held until it has spoken
            ping = pack(PING, SYN, 0, 7)
            said = frame_head(Opcode.BINARY, len(ping), KEY) + opened(memoryview(ping), KEY)
            assert len(said) == 18
            old = living(TunnelWebSocket)  # of specs before, until the collector comes
            reader, writer = await dial_by_hand(front, node, said[:before])
            await asked.wait()
            if before:
                assert spoke_early(since=old), "what came in one piece with the headers was dropped"
            if before < len(said):
                writer.write(said[before:])
                await writer.drain()
            await until(lambda: spoke_early(since=old))
            go.set()
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), TIMINGS.handshake_s)
            assert head.startswith(b"HTTP/1.1 101")
            pong = await asyncio.wait_for(reader.readexactly(14), TIMINGS.handshake_s)
            assert pong[2:] == pack(PING, 2, 0, 7)
            assert await front.metric('blackstart_tunnel_carrier{path="asgi"}') == 1
            writer.close()
            await until(lambda: front.replica.table.get(node) is None)

    asyncio.run(story())


def spoke_early(*, since: list[TunnelWebSocket]) -> bool:
    return any(
        protocol._spoke_early
        for protocol in living(TunnelWebSocket)
        if all(protocol is not old for old in since)
    )


def living(kind: type[T]) -> list[T]:
    """Every object of that class; its type is asked, since to ask a proxy of one that is gone is an error."""
    return [thing for thing in gc.get_objects() if issubclass(type(thing), kind)]


async def dial_by_hand(
    front: Served, node: str, more: bytes = b""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    where = urlsplit(front.url)
    assert where.hostname is not None
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    headers = {
        "Host": where.netloc,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(bytes(16)).decode(),
        "Sec-WebSocket-Protocol": SUBPROTOCOL,
        "Authorization": "Bearer c",
        "X-Blackstart-Boot": BOOT,
    }
    lines = [
        f"GET /api/node/{node}/tunnel HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + more)
    await writer.drain()
    return reader, writer
