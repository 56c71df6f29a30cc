from __future__ import annotations

import asyncio
import io
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from inference_fleet.tunnel import (
    DeadlineExpired,
    Refusal,
    SessionDead,
    StreamRefused,
    StreamRequest,
    request_stream,
)
from inference_fleet.tunnel.http import stream_client, tunnel_error
from inference_fleet.tunnel.worker import SeenEpoch, serve_streams
from inference_fleet.tunnel.yamux.wire import INITIAL_WINDOW

from .linked import TIMINGS, serve, soon, until, within
from .piped import Piped, piped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from inference_fleet.tunnel import Stream

REQUEST = StreamRequest(tag="http", node="n1", epoch=1)


@asynccontextmanager
async def _through(
    handler: Callable[[Request], Awaitable[Response]],
) -> AsyncIterator[tuple[aiohttp.ClientSession, Piped, list[Stream]]]:
    """An aiohttp client whose requests reach `handler` in a real uvicorn through a tunnel."""
    opened: list[Stream] = []
    app = Starlette(routes=[Route("/{path:path}", handler, methods=["GET", "POST", "HEAD"])])
    async with serve(app) as url:
        port = int(url.rpartition(":")[2])
        serve_worker = serve_streams(
            node="n1", seen=SeenEpoch(), resolve=lambda *_: ("127.0.0.1", port), timings=TIMINGS
        )
        async with piped(on_client_stream=serve_worker) as both:

            async def open_stream() -> Stream:
                stream = await request_stream(both.server, REQUEST, deadline=soon())
                opened.append(stream)
                return stream

            async with stream_client(open_stream) as client:
                yield client, both, opened


async def _echo_body(request: Request) -> Response:
    return PlainTextResponse(await request.body(), headers={"X-Host": request.headers["host"]})


def test_a_request_and_its_response_pass_and_the_host_is_only_a_name() -> None:
    async def story() -> None:
        async with _through(_echo_body) as (client, both, _):
            payload = bytes(range(256)) * 5000
            async with client.post("http://worker-1/echo", data=io.BytesIO(payload)) as response:
                assert (response.status, response.headers["X-Host"]) == (200, "worker-1")
                assert await response.read() == payload
            await until(lambda: both.server.streams_open == 0)

    asyncio.run(story())


def test_an_answer_that_came_before_the_rest_of_the_request_could_go_is_used() -> None:
    answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 8\r\nConnection: close\r\n\r\ntoo long"

    async def story() -> None:
        async def early(stream: Stream) -> None:
            await stream.read_exactly(1, deadline=soon())
            stream.write(answer)
            await until(lambda: not stream.get_write_buffer_size())
            stream.abort()  # the rest of the request has nowhere to go

        async with piped(on_client_stream=early) as both:

            async def open_stream() -> Stream:
                return both.server.open_stream()

            async with (
                stream_client(open_stream) as client,
                client.post("http://w/", data=io.BytesIO(bytes(4 * INITIAL_WINDOW))) as response,
            ):
                assert (response.status, await response.read()) == (413, b"too long")
            await until(lambda: both.server.streams_open == 0)

    asyncio.run(story())


def test_every_request_has_a_stream_of_its_own_which_ends_without_a_reset() -> None:
    async def story() -> None:
        async with _through(_echo_body) as (client, both, opened):
            for number in range(5):
                async with client.post("http://w/", data=b"x") as response:
                    assert await response.read() == b"x"
                await until(lambda: both.server.streams_open == 0)
                assert len(opened) == number + 1
            async with client.head("http://w/") as response:
                assert response.status == 200
            await until(lambda: both.server.streams_open == 0)
            assert [stream.error for stream in opened] == [None] * 6
            assert both.client._mux._resets.spent == 0, "finished exchanges are no resets to the worker"

    asyncio.run(story())


@pytest.mark.parametrize("how", ["close", "cancel", "before the first byte"])
def test_a_caller_that_leaves_resets_the_stream_and_the_work_ends(how: str) -> None:
    async def story() -> None:
        working, ended = asyncio.Event(), asyncio.Event()

        async def endless(_request: Request) -> Response:
            async def body() -> AsyncIterator[bytes]:
                try:
                    while True:
                        if how != "before the first byte":
                            yield b"token "
                        working.set()
                        await asyncio.sleep(TIMINGS.loop_lag_sample_s / 50)
                finally:
                    ended.set()

            return StreamingResponse(body())

        async with _through(endless) as (client, both, _):
            if how == "close":
                response = await client.get("http://w/")
                await response.content.readany()
                response.close()
            else:

                async def read() -> None:
                    async with client.get("http://w/") as response:
                        await response.read()

                reading = asyncio.create_task(read())
                await within(working.wait())
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
            await within(ended.wait())
            assert both.server.streams_open == 0

    asyncio.run(story())


def test_a_slow_reader_of_a_response_stops_the_sender() -> None:
    async def story() -> None:
        sent = [0]

        async def endless(_request: Request) -> Response:
            async def body() -> AsyncIterator[bytes]:
                while True:
                    yield bytes(100_000)
                    sent[0] += 100_000
                    await asyncio.sleep(0)  # the server's own watch for the hang-up needs the loop

            return StreamingResponse(body())

        async with _through(endless) as (client, _, _opened), client.get("http://w/") as response:
            await response.content.readany()
            previous = -1
            while sent[0] != previous:
                previous = sent[0]
                await asyncio.sleep(TIMINGS.loop_lag_sample_s)
            assert sent[0] < 32 * 1024 * 1024, "kernel buffers, windows and high-water marks, no more"

    asyncio.run(story())


def test_errors_of_opening_are_found_behind_the_clients_own() -> None:
    refused = StreamRefused(Refusal.UNAVAILABLE.value, "nobody there")

    async def fail(error: Exception) -> BaseException | None:
        async def open_stream() -> Stream:
            raise error

        async with stream_client(open_stream) as client:
            try:
                await client.get("http://w/")
            except Exception as caught:  # noqa: BLE001  # whatever it is wrapped in is the question
                return tunnel_error(caught)
        return None

    async def story() -> None:
        for error in (refused, SessionDead("gone"), DeadlineExpired("late")):
            assert await fail(error) is error
        assert await fail(ValueError("something else")) is None

    asyncio.run(story())


def test_the_death_of_the_session_mid_body_is_an_error_and_never_a_short_answer() -> None:
    async def story() -> None:
        async def endless(_request: Request) -> Response:
            async def body() -> AsyncIterator[bytes]:
                while True:
                    yield b"token "
                    await asyncio.sleep(TIMINGS.loop_lag_sample_s / 50)

            return StreamingResponse(body())

        async with _through(endless) as (client, both, opened), client.get("http://w/") as response:
            await response.content.readany()
            both.server_carrier.inbox.put_nowait(None)
            with pytest.raises(aiohttp.ClientError):
                await within(response.read())
            assert isinstance(opened[0].error, SessionDead)

    asyncio.run(story())


def test_opening_is_cancelled_with_its_caller() -> None:
    async def story() -> None:
        opening, cancelled = asyncio.Event(), asyncio.Event()

        async def open_stream() -> Stream:
            opening.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError("unreachable")

        async with stream_client(open_stream) as client:
            asking = asyncio.ensure_future(client.get("http://w/"))
            await within(opening.wait())
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert cancelled.is_set()

    asyncio.run(story())
