from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import WebSocketRoute

from inference_fleet.tunnel import DialFailed, DialRefused
from inference_fleet.tunnel.worker import dial

from ..linked import TIMINGS, serve  # noqa: TID252  # specs share aids by folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.websockets import WebSocket

CREDENTIAL = "worker-credential"


@asynccontextmanager
async def _frontend(
    *, epoch: bytes | None = b"41", status: int = 101
) -> AsyncIterator[tuple[str, list[object]]]:
    seen: list[object] = []

    async def route(websocket: WebSocket) -> None:
        headers = websocket.headers
        seen.append(websocket.path_params["node"])
        seen.append([headers.get(f"x-blackstart-{name}") for name in ("boot", "seen-epoch")])
        seen.append(headers.get("authorization"))
        seen.append(websocket.scope["subprotocols"])
        if status != 101:
            await websocket.send_denial_response(PlainTextResponse("who are you", status))
            return
        await websocket.accept(
            subprotocol="blackstart.tunnel.v1",
            headers=[] if epoch is None else [(b"X-Blackstart-Epoch", epoch)],
        )
        await websocket.receive()

    app = Starlette(routes=[WebSocketRoute("/api/node/{node}/tunnel", route)])
    async with serve(app) as url:
        yield url, seen


async def _dial(url: str) -> int:
    dialled = await dial(
        url,
        node_id="node-1",
        credential=CREDENTIAL,
        boot_id="boot-0001",
        seen_epoch=17,
        timings=TIMINGS,
    )
    dialled.carrier.abort()
    return dialled.epoch


def test_the_dial_says_who_it_is_and_what_it_has_seen_and_learns_its_epoch() -> None:
    async def story() -> None:
        async with _frontend() as (url, seen):
            assert await _dial(f"{url}/") == 41
            assert seen == ["node-1", ["boot-0001", "17"], f"Bearer {CREDENTIAL}", ["blackstart.tunnel.v1"]]

    asyncio.run(story())


@pytest.mark.parametrize("epoch", [None, b"", b"-1", b"4.2", b"forty", b"9223372036854775808", b"1" * 5000])
def test_a_101_without_a_usable_epoch_is_a_failed_dial(epoch: bytes | None) -> None:
    async def story() -> None:
        async with _frontend(epoch=epoch) as (url, _):
            with pytest.raises(DialFailed, match="X-Blackstart-Epoch"):
                await _dial(url)

    asyncio.run(story())


@pytest.mark.holds("B-25")
@pytest.mark.parametrize("status", [401, 403, 409, 503])
def test_a_denial_keeps_its_status_and_never_prints_the_credential(status: int) -> None:
    async def story() -> None:
        async with _frontend(status=status) as (url, _):
            with pytest.raises(DialRefused) as caught:
                await _dial(url)
            assert caught.value.status == status
            assert CREDENTIAL not in str(caught.value)

    asyncio.run(story())
