"""Connections before they are requests: they speak in time, briefly, and are few."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from specs.unit.inference_fleet.route.piped import TIMINGS, until

from inference_fleet.frontend import listener

from .served import served

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from .served import Served

QUICK = replace(TIMINGS, handshake_s=TIMINGS.instance_beat_s)


async def connect(front: Served) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = front.url.removeprefix("http://").partition(":")
    return await asyncio.open_connection(host, int(port))


async def hung_up(reader: asyncio.StreamReader) -> bytes:
    """What came before the server hung up."""
    async with asyncio.timeout(TIMINGS.start_s):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def is_hung_up_on(reader: asyncio.StreamReader) -> bool:
    """Whether the server hung up without a word, rather than going on to wait."""
    try:
        return await hung_up(reader) == b""
    except TimeoutError:
        return False


def test_a_connection_that_says_nothing_or_never_ends_its_headers_is_hung_up_on(
    url: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with served(url, tmp_path, timings=QUICK) as front:
            for said in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"):
                reader, writer = await connect(front)
                writer.write(said)
                assert await hung_up(reader) == b""
                writer.close()

        patient = replace(QUICK, handshake_s=4 * QUICK.handshake_s)
        async with served(url, tmp_path, timings=patient, instance_id="b") as front:
            reader, writer = await connect(front)
            for _ in range(3):  # a kept connection has its time anew for each request
                await asyncio.sleep(patient.handshake_s / 2.5)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                await reader.readuntil(b"}")
            writer.close()

    asyncio.run(story())


def test_headers_past_the_cap_are_hung_up_on(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            reader, writer = await connect(front)
            writer.write(b"GET /healthz HTTP/1.1\r\nX-Long: " + b"x" * (2 * listener.HEADER_BYTES))
            assert await hung_up(reader) == b""
            writer.close()
            long = {"X-Long": "x" * (listener.HEADER_BYTES // 2)}
            assert (await front.http.get("/healthz", headers=long)).status_code == 200, "the control"

    asyncio.run(story())


def test_a_body_that_comes_in_one_piece_with_its_headers_is_no_header(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            reader, writer = await connect(front)
            body = b"x" * (2 * listener.HEADER_BYTES)
            head = f"POST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            try:
                answer = await asyncio.wait_for(reader.readline(), TIMINGS.start_s)
            except ConnectionResetError:
                answer = b""
            assert answer.startswith(b"HTTP/1.1 413 "), f"the body was taken for headers: {answer!r}"
            writer.close()

    asyncio.run(story())


def test_trailers_without_end_are_hung_up_on(url: str, tmp_path: Path) -> None:
    head = b"POST /api/auth/login HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def story() -> None:
        async with served(url, tmp_path) as front:
            for trailer in (b"X-T: t\r\n", b"x"):  # many of them, and one that does not end
                reader, writer = await connect(front)
                writer.write(head + b"0\r\n" + trailer * (16 * listener.HEADER_BYTES // len(trailer)))
                assert await is_hung_up_on(reader), "the trailers were waited for"
                writer.close()

            reader, writer = await connect(front)
            chunk = b"2\r\n{}\r\n" + b"1\r\n \r\n" * (8 * listener.HEADER_BYTES // 6)
            writer.write(head + chunk + b"0\r\nX-T: t\r\n\r\n")
            try:
                answer = await asyncio.wait_for(reader.readline(), TIMINGS.start_s)
            except ConnectionResetError:
                answer = b""
            assert answer.startswith(b"HTTP/1.1 4"), "the control: small chunks are a body"
            writer.close()

    asyncio.run(story())


def test_an_upgrade_with_more_headers_than_can_be_read_is_hung_up_on(url: str, tmp_path: Path) -> None:
    head = (
        "GET /api/cluster/peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    )

    async def story() -> None:
        async with served(url, tmp_path) as front:
            for more in ("X-Long: " + "x" * (listener.HEADER_BYTES // 4) + "\r\n", "X-Many: x\r\n" * 512):
                reader, writer = await connect(front)
                writer.write((head + more + "\r\n").encode())
                left = await is_hung_up_on(reader)
                writer.close()
                assert left, "an upgrade that cannot be read was kept"

            reader, writer = await connect(front)
            writer.write((head + "\r\n").encode())
            assert (await reader.readline()).startswith(b"HTTP/1.1 401"), "the control"
            writer.close()

    asyncio.run(story())


def test_a_body_that_nobody_waits_for_does_not_keep_its_connection(url: str, tmp_path: Path) -> None:
    quick = replace(TIMINGS, http_idle_s=QUICK.handshake_s)

    async def story() -> None:
        async with served(url, tmp_path, timings=quick) as front:
            reader, writer = await connect(front)
            writer.write(b"POST /api/node/x/heartbeat HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
            assert (await reader.readuntil(b"}}")).startswith(b"HTTP/1.1 401"), "it answered at once"
            writer.write(b"y")  # a sign of life that is no request
            assert await is_hung_up_on(reader), "the body kept its connection"
            writer.close()

            reader, writer = await connect(front)
            writer.write(b"POST /api/node/x/heartbeat HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nx")
            assert (await reader.readuntil(b"}}")).startswith(b"HTTP/1.1 401")
            writer.write(b"yPOST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{")
            await asyncio.sleep(
                2 * QUICK.handshake_s
            )  # longer than a connection is kept, but a request is on it
            writer.write(b"}")
            assert b"HTTP/1.1 400" in await reader.readline(), "the next request has its own time"
            writer.close()

    asyncio.run(story())


def test_silent_connections_are_few_and_the_rest_of_the_server_goes_on(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "SILENT_AT_ONCE", 3)

    async def story() -> None:
        async with served(url, tmp_path) as front:
            assert (await front.http.get("/healthz")).status_code == 200
            silent = [await connect(front) for _ in range(3)]
            reader, writer = await connect(front)
            assert await hung_up(reader) == b"", "one more silent connection is one too many"
            writer.close()
            assert (await front.http.get("/healthz")).status_code == 200, "who has spoken is not counted"
            for _, each in silent:
                each.close()

            async def room_again() -> bool:
                _, again = await connect(front)
                again.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                again.close()
                return True

            await until(room_again)

    asyncio.run(story())


def test_a_slow_body_is_408_and_says_how_much_came(url: str, tmp_path: Path) -> None:
    quick = replace(TIMINGS, body_read_s=TIMINGS.instance_beat_s)

    async def story() -> None:
        async with served(url, tmp_path, timings=quick) as front:
            reader, writer = await connect(front)
            writer.write(b"POST /api/auth/login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            answer = await reader.readuntil(b"}}")
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"body_timeout" in answer
            assert b"(1 bytes did)" in answer
            writer.close()

    asyncio.run(story())
