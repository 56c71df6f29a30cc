from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from inference_fleet.tunnel import Session, dial_websocket
from inference_fleet.tunnel.frontend import AbortableWebSocketProtocol, AsgiCarrier
from inference_fleet.tunnel.yamux import Mux
from inference_fleet.tunnel.yamux.wire import DATA, SYN, pack

from ..awaited import Awaited  # noqa: TID252  # specs share aids by folder
from ..linked import PROTOCOL, TIMINGS, Collector, until, within  # noqa: TID252  # specs share aids by folder

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from inference_fleet.tunnel import Stream


def _websocket(*incoming: MutableMapping[str, Any]) -> tuple[WebSocket, list[MutableMapping[str, Any]]]:
    """A WebSocket that was accepted and then receives exactly these messages."""
    queue = [{"type": "websocket.connect"}, *incoming]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        if not queue:
            await asyncio.Event().wait()
        return queue.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    return WebSocket({"type": "websocket", "headers": []}, receive, send), sent


def _bytes(data: bytes) -> MutableMapping[str, Any]:
    return {"type": "websocket.receive", "bytes": data}


GONE: MutableMapping[str, Any] = {"type": "websocket.disconnect", "code": 1006}


def test_binary_messages_come_as_they_are_and_a_disconnect_is_the_end() -> None:
    async def story() -> None:
        websocket, sent = _websocket(_bytes(b"one"), _bytes(b""), _bytes(b"two"), GONE)
        await websocket.accept()
        carrier = AsgiCarrier(websocket)
        assert [await carrier.receive() for _ in range(5)] == [b"one", b"", b"two", None, None]
        await carrier.send(b"out")
        assert sent[-1] == {"type": "websocket.send", "bytes": b"out"}

    asyncio.run(story())


def test_a_text_message_closes_the_connection_by_name() -> None:
    async def story() -> None:
        websocket, sent = _websocket({"type": "websocket.receive", "text": "hello"}, GONE)
        await websocket.accept()
        assert await AsgiCarrier(websocket).receive() is None
        assert (sent[-1]["type"], sent[-1]["code"]) == ("websocket.close", 1003)

    asyncio.run(story())


def test_sending_or_closing_after_the_close_is_an_error_or_nothing() -> None:
    async def story() -> None:
        websocket, _ = _websocket()
        await websocket.accept()
        carrier = AsgiCarrier(websocket)
        await carrier.close(1000, "x" * 500)
        await carrier.close()
        with pytest.raises(ConnectionResetError):
            await carrier.send(b"late")
        carrier.abort()

    asyncio.run(story())


@pytest.mark.holds("B-27")
@pytest.mark.parametrize("piece", [1, 5, 11, 12, 13, 4096, 1 << 20])
def test_a_message_larger_than_what_is_taken_of_it_loses_no_tail(piece: int) -> None:
    """Two parsers: WebSocket messages and yamux frames share no boundary, whichever is larger."""
    body = bytes(range(256)) * 64
    frames = pack(DATA, SYN, 1, len(body)) + body
    messages = [_bytes(frames[at : at + piece]) for at in range(0, len(frames), piece)]

    async def story() -> None:
        websocket, _ = _websocket(*messages)
        await websocket.accept()
        seen = Collector()

        async def keep(stream: Stream) -> None:
            stream.set_protocol(seen)
            await asyncio.Event().wait()

        session = Session(AsgiCarrier(websocket), client=False, timings=TIMINGS, on_stream=keep)
        run = asyncio.create_task(session.run())
        await until(lambda: len(seen.data) == len(body))
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert bytes(seen.data) == body

    asyncio.run(story())


@pytest.mark.holds("B-27")
def test_one_message_with_many_frames_is_consumed_bit_by_bit() -> None:
    mux = Mux(client=False)
    message = memoryview(pack(DATA, SYN, 1, 3) + b"abc" + pack(DATA, 0, 1, 2) + b"de" + pack(2, 1, 0, 9)[:5])
    at, taken = 0, bytearray()
    while at < len(message):
        if mux.header_due:
            piece = message[at : at + min(4, mux.header_due)]
            mux.receive_header(piece, 0.0)
        else:
            piece = message[at : at + min(2, mux.payload_due)]
            taken += piece
            mux.receive_payload(len(piece))
        at += len(piece)
    assert bytes(taken) == b"abcde"
    assert mux.header_due == 7, "the last header waits for its other seven bytes"


@pytest.mark.holds("T-8")
def test_uvicorn_can_be_told_to_drop_the_transport_of_a_peer_that_is_gone() -> None:
    async def story() -> None:
        accepted: asyncio.Future[AsgiCarrier] = asyncio.get_running_loop().create_future()

        async def route(websocket: WebSocket) -> None:
            await websocket.accept(subprotocol=PROTOCOL)
            accepted.set_result(AsgiCarrier(websocket))
            await websocket.receive()

        config = uvicorn.Config(
            Starlette(routes=[WebSocketRoute("/tunnel", route)]),
            port=0,
            log_level="warning",
            lifespan="off",
            ws=AbortableWebSocketProtocol,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        port = server.servers[0].sockets[0].getsockname()[1]
        dialled, _ = await dial_websocket(
            f"ws://127.0.0.1:{port}/tunnel", subprotocol=PROTOCOL, headers={}, timings=TIMINGS
        )
        carrier = Awaited(dialled)
        (await accepted).abort()
        assert await within(carrier.receive()) is None
        await until(lambda: not server.server_state.connections)
        await server.shutdown()

    asyncio.run(story())
