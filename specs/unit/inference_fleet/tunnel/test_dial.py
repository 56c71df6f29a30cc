from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import WebSocketRoute
from websockets.utils import accept_key

from inference_fleet.tunnel import DialFailed, DialRefused, dial_websocket
from inference_fleet.tunnel.websocket import Opcode, frame_head

from .awaited import Awaited
from .linked import PROTOCOL, TIMINGS, serve, within
from .services import refusing_port, reset_connection, service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.websockets import WebSocket


@asynccontextmanager
async def _route(handler: Callable[[WebSocket], Awaitable[None]]) -> AsyncIterator[str]:
    async with serve(Starlette(routes=[WebSocketRoute("/tunnel", handler)])) as url:
        yield f"{url}/tunnel"


def test_an_upgrade_gives_the_carrier_and_the_headers_of_the_101_whatever_their_case() -> None:
    async def accept(websocket: WebSocket) -> None:
        assert websocket.headers["x-asked"] == "yes"
        assert websocket.scope["subprotocols"] == [PROTOCOL]
        assert "sec-websocket-extensions" not in websocket.headers, "compression is off"
        await websocket.accept(subprotocol=PROTOCOL, headers=[(b"X-Answer", b"42")])
        assert (await websocket.receive_bytes()) == b"up"
        await websocket.send_bytes(b"down")
        await websocket.close(1001)

    async def story() -> None:
        async with _route(accept) as url:
            dialled, headers = await dial_websocket(
                url, subprotocol=PROTOCOL, headers={"X-Asked": "yes"}, timings=TIMINGS
            )
            carrier = Awaited(dialled)
            assert headers["x-answer"] == "42"
            await carrier.send(b"up")
            assert await within(carrier.receive()) == b"down"
            assert await within(carrier.receive()) is None
            assert carrier.why is None, "an orderly end has no reason"
            await carrier.close()

    asyncio.run(story())


@pytest.mark.holds("B-25", "T-3")
def test_a_plain_http_answer_before_the_upgrade_is_a_refusal_with_status_words_and_retry_after() -> None:
    async def deny(websocket: WebSocket) -> None:
        await websocket.send_denial_response(
            PlainTextResponse("no such credential" + "." * 10_000, 401, headers={"Retry-After": "7"})
        )

    async def story() -> None:
        async with _route(deny) as url:
            with pytest.raises(DialRefused) as caught:
                await dial_websocket(
                    url, subprotocol=PROTOCOL, headers={"Authorization": "Bearer s3cret"}, timings=TIMINGS
                )
            refused = caught.value
            assert (refused.status, refused.retry_after_s) == (401, 7.0)
            assert refused.body.startswith("no such credential")
            assert len(refused.body) == 2048
            assert "401" in str(refused)
            assert "s3cret" not in str(refused)

    asyncio.run(story())


@pytest.mark.parametrize("value", ["Wed, 21 Oct 2026 07:28:00 GMT", "-1", "nan", "1e99", "x"])
def test_a_retry_after_that_names_no_seconds_is_none(value: str) -> None:
    async def deny(websocket: WebSocket) -> None:
        await websocket.send_denial_response(PlainTextResponse("", 503, headers={"Retry-After": value}))

    async def story() -> None:
        async with _route(deny) as url:
            with pytest.raises(DialRefused) as caught:
                await dial_websocket(url, subprotocol=PROTOCOL, headers={}, timings=TIMINGS)
            assert (caught.value.status, caught.value.retry_after_s) == (503, None)

    asyncio.run(story())


@pytest.mark.parametrize("chosen", [None, "other.v9"])
def test_a_server_that_speaks_another_subprotocol_is_named(chosen: str | None) -> None:
    async def accept(websocket: WebSocket) -> None:
        await websocket.accept(subprotocol=chosen)
        await websocket.receive()

    async def story() -> None:
        async with _route(accept) as url:
            with pytest.raises(DialFailed) as caught:
                await dial_websocket(url, subprotocol=PROTOCOL, headers={}, timings=TIMINGS)
            assert url in str(caught.value)

    asyncio.run(story())


def test_a_redirect_is_a_refusal_and_is_never_followed_with_the_credential() -> None:
    followed: list[str | None] = []

    async def redirect(websocket: WebSocket) -> None:
        followed.append(websocket.headers.get("authorization"))
        if len(followed) > 1:
            await websocket.accept(subprotocol=PROTOCOL)
            return
        await websocket.send_denial_response(
            PlainTextResponse("", 307, headers={"Location": "/tunnel?again"})
        )

    async def story() -> None:
        async with _route(redirect) as url:
            with pytest.raises(DialRefused) as caught:
                await dial_websocket(
                    url, subprotocol=PROTOCOL, headers={"Authorization": "Bearer s3cret"}, timings=TIMINGS
                )
            assert caught.value.status == 307
            assert followed == ["Bearer s3cret"]

    asyncio.run(story())


def test_nobody_there_no_http_and_no_answer_in_time_are_failures_that_name_the_address() -> None:
    async def hang_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reset_connection(writer)

    async def garbage(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH\r\n\r\n")

    async def silence(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def dial(port: int) -> str:
        hasty = replace(TIMINGS, handshake_s=TIMINGS.handshake_s / 10)
        with pytest.raises(DialFailed) as caught:
            await dial_websocket(
                f"ws://127.0.0.1:{port}/tunnel", subprotocol=PROTOCOL, headers={}, timings=hasty
            )
        return str(caught.value)

    async def story() -> None:
        port = refusing_port()
        assert f":{port}/" in await dial(port)
        for handler in (hang_up, garbage):
            async with service(handler) as port:
                assert f":{port}/" in await dial(port)
        async with service(silence) as port:
            assert "did not finish the handshake" in await dial(port)

    asyncio.run(story())


def test_an_address_that_is_none_is_a_failure_not_a_crash() -> None:
    async def story() -> None:
        with pytest.raises(DialFailed, match="nonsense"):
            await dial_websocket("nonsense", subprotocol=PROTOCOL, headers={}, timings=TIMINGS)

    asyncio.run(story())


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    async def story() -> None:
        async with service(proxy) as port:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
            monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
            monkeypatch.delenv("no_proxy", raising=False)
            monkeypatch.delenv("NO_PROXY", raising=False)
            with pytest.raises(DialFailed):
                await dial_websocket(
                    "ws://frontend.invalid:80/tunnel", subprotocol=PROTOCOL, headers={}, timings=TIMINGS
                )
        assert seen == [b"CONNECT frontend.invalid:80 HTTP/1.1\r\n"]

    asyncio.run(story())


def test_abort_drops_the_connection_and_the_reader_learns_it() -> None:
    async def accept(websocket: WebSocket) -> None:
        await websocket.accept(subprotocol=PROTOCOL)
        await websocket.receive()

    async def story() -> None:
        async with _route(accept) as url:
            dialled, _ = await dial_websocket(url, subprotocol=PROTOCOL, headers={}, timings=TIMINGS)
            carrier = Awaited(dialled)
            carrier.abort()
            assert await within(carrier.receive()) is None

    asyncio.run(story())


def test_a_header_that_comes_twice_is_no_failure() -> None:
    """As two `Set-Cookie` of a balancer before the replicas."""

    async def answer(websocket: WebSocket) -> None:
        if websocket.headers["x-asked"] == "yes":
            cookies = [(b"Set-Cookie", b"a=1"), (b"Set-Cookie", b"b=2"), (b"X-Answer", b"42")]
            await websocket.accept(subprotocol=PROTOCOL, headers=cookies)
            await websocket.receive()
            return
        refusal = PlainTextResponse("later", 503)
        refusal.raw_headers += [(b"retry-after", b"7"), (b"retry-after", b"9")]
        await websocket.send_denial_response(refusal)

    async def story() -> None:
        async with _route(answer) as url:
            try:
                carrier, headers = await dial_websocket(
                    url, subprotocol=PROTOCOL, headers={"X-Asked": "yes"}, timings=TIMINGS
                )
            except LookupError as error:
                pytest.fail(f"two values of one header end the dial: {error!r}")
            carrier.abort()
            assert headers["x-answer"] == "42"
            with pytest.raises(DialRefused) as caught:
                await dial_websocket(url, subprotocol=PROTOCOL, headers={"X-Asked": "no"}, timings=TIMINGS)
            assert (caught.value.status, caught.value.retry_after_s) == (503, 7)

    asyncio.run(story())


@pytest.mark.holds("T-11")
@pytest.mark.parametrize("cut", ["in the headers", "at their end", "in a frame", "behind a frame"])
def test_what_comes_in_one_read_with_the_101_is_the_sessions_whole_and_in_order(cut: str) -> None:
    first, second = b"early bird", bytes(range(200))
    frames = b"".join(frame_head(Opcode.BINARY, len(body)) + body for body in (first, second))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = next(
            line.partition(": ")[2]
            for line in request.split("\r\n")
            if line.lower().startswith("sec-websocket-key")
        )
        head = (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Accept: {accept_key(key)}\r\nSec-WebSocket-Protocol: {PROTOCOL}\r\n\r\n"
        ).encode()
        said = head + frames
        at = {
            "in the headers": len(head) - 2,
            "at their end": len(head),
            "in a frame": len(head) + 5,
            "behind a frame": len(head) + 2 + len(first),
        }[cut]
        writer.write(said[:at])
        await asked.wait()
        writer.write(said[at:])
        await reader.read()

    asked = asyncio.Event()

    async def story() -> bytes:
        async with service(answer) as port:
            dialling = asyncio.ensure_future(
                dial_websocket(f"http://127.0.0.1:{port}/", subprotocol=PROTOCOL, headers={}, timings=TIMINGS)
            )
            if cut == "in the headers":
                asked.set()
            dialled, _ = await dialling
            asked.set()
            carrier, came = Awaited(dialled), b""
            while len(came) < len(first + second):
                piece = await within(carrier.receive())
                assert isinstance(piece, bytes), f"the connection ended after {came!r}"
                came += piece
            carrier.abort()
            return came

    came = asyncio.run(story())
    assert came == first + second, f"what came with the 101 is lost: {came!r}"
