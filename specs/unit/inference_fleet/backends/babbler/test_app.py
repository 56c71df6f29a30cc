"""The babbler as its clients see it, over a real connection."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from inference_fleet.backends.babbler.wire import BODY_LIMIT
from inference_fleet.settings.loopback import LOOPBACK

from .served import TIMINGS, Served, request_body, served

# slow enough that nothing ends by itself within a spec: a minute and more
ENDLESS: dict[str, Any] = {"max_tokens": 600, "pace_tokens_per_second": 10}


def test_the_same_seed_gives_the_same_text_streamed_or_whole_under_any_server_seed() -> None:
    async def story() -> None:
        async with served(seed=1) as one, served(seed=2) as other:
            whole = await one.text(seed=5, max_tokens=30)
            streamed = await other.events(seed=5, max_tokens=30)
            texts = [event["choices"][0]["delta"].get("content", "") for event in streamed[:-1]]

            assert whole
            assert "".join(texts) == whole
            assert await one.text(seed=6, max_tokens=30) != whole

    asyncio.run(story())


def test_a_request_without_a_seed_takes_the_servers_or_draws_one() -> None:
    async def story() -> None:
        async with served(seed=9) as fixed, served() as free:
            assert await fixed.text() == await fixed.text(seed=9)
            assert len({await free.text() for _ in range(4)}) > 1

    asyncio.run(story())


def test_max_tokens_bounds_the_answer_and_usage_counts_it() -> None:
    async def story() -> None:
        async with served(seed=1) as babbler:
            body = (await babbler.chat(" the harbour", max_tokens=7)).json()

            assert body["choices"][0]["finish_reason"] == "length"
            assert body["usage"]["completion_tokens"] == 7
            assert body["usage"]["prompt_tokens"] == 2
            assert body["usage"]["total_tokens"] == 9

    asyncio.run(story())


def test_a_stop_sequence_ends_the_answer_before_it_and_says_so() -> None:
    async def story() -> None:
        async with served(seed=4) as babbler:
            free = await babbler.text(max_tokens=60)
            stop = free[len(free) // 2 : len(free) // 2 + 4]
            body = (await babbler.chat(max_tokens=60, stop=[stop, "never said"])).json()

            assert body["choices"][0]["message"]["content"] == free[: free.index(stop)]
            assert body["choices"][0]["finish_reason"] == "stop"
            assert body["usage"]["completion_tokens"] < 60

    asyncio.run(story())


def test_a_stream_is_chunks_then_a_reason_then_usage_if_asked_then_done() -> None:
    async def story() -> None:
        async with served(seed=4) as babbler:
            events = await babbler.events(max_tokens=3, stream_options={"include_usage": True})
            *chunks, last, usage, done = events

            assert done == "[DONE]"
            assert usage["choices"] == []
            assert usage["usage"]["completion_tokens"] == 3
            assert last["choices"][0]["finish_reason"] == "length"
            assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
            assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
            plain = await babbler.events(max_tokens=3)
            assert not any("usage" in event for event in plain[:-1])

    asyncio.run(story())


def test_a_pace_holds_the_whole_answer_to_its_time() -> None:
    async def story() -> None:
        async with served(seed=4, tokens_per_second=200) as babbler:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await babbler.text(max_tokens=40)
            paced = loop.time() - begun
            await babbler.text(max_tokens=40, pace_tokens_per_second=100)
            slower = loop.time() - begun - paced
            begun = loop.time()
            await babbler.text(max_tokens=40, pace_tokens_per_second=10_000)
            asked_faster = loop.time() - begun

            assert paced >= 40 / 200
            assert slower >= 40 / 100
            assert asked_faster >= 40 / 200, "a request may only slow the model down"

    asyncio.run(story())


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_ends_its_generation_at_once(stream: bool) -> None:  # noqa: FBT001 - parametrised
    async def story() -> None:
        async with served() as babbler:
            writer = await _hanging(babbler, stream=stream)
            await babbler.until(lambda: babbler.speaker.stats.active == 1)
            writer.transport.abort()
            await babbler.until(lambda: babbler.speaker.stats.active == 0)

            stats = (await babbler.client.get("/stats")).json()
            assert stats["started"] == 1
            assert stats["finished"] == 0
            assert stats["tokens"] < 300

    asyncio.run(story())


def test_stats_count_what_runs_what_began_and_what_ended_by_itself() -> None:
    async def story() -> None:
        async with served() as babbler:
            await babbler.text(max_tokens=5)
            writer = await _hanging(babbler, stream=True)
            await babbler.until(lambda: babbler.speaker.stats.active == 1)

            stats = (await babbler.client.get("/stats")).json()
            assert set(stats) == {"active", "started", "finished", "tokens"}
            assert (stats["active"], stats["started"], stats["finished"]) == (1, 2, 1)
            assert stats["tokens"] >= 5
            writer.transport.abort()

    asyncio.run(story())


def test_another_models_name_is_not_found_and_its_own_is_listed() -> None:
    async def story() -> None:
        async with served() as babbler:
            other = await babbler.chat(model="somebody-else")
            listed = (await babbler.client.get("/v1/models")).json()

            assert other.status_code == 404
            assert other.json()["error"]["code"] == "model_not_found"
            assert other.json()["error"]["param"] == "model"
            assert (
                other.json()["error"]["message"]
                == "model: 'somebody-else' is not served by this process; try: 'b'"
            )
            assert [model["id"] for model in listed["data"]] == ["b"]

    asyncio.run(story())


def test_wrong_paths_methods_and_sizes_are_answered_in_words() -> None:
    async def story() -> None:
        async with served() as babbler:
            client = babbler.client
            huge = msgspec.json.encode(request_body("x" * BODY_LIMIT))

            for asked, status, named in (
                (client.get("/nowhere"), 404, "/nowhere"),
                (client.get("/v1/chat/completions"), 405, "GET is not a method of /v1/chat/completions"),
                (client.post("/stats"), 405, "POST is not a method of /stats"),
                (client.post("/v1/chat/completions", content=huge), 413, f"{BODY_LIMIT} bytes"),
            ):
                refused = await asked
                assert refused.status_code == status
                message = refused.json()["error"]["message"]
                assert named in message
                assert "; try: " in message, f"no remedy: {message}"
            assert (await client.post("/v1/chat/completions", content=b"{")).json()["error"][
                "code"
            ] == "invalid"
            assert babbler.speaker.stats.started == 0

    asyncio.run(story())


async def _hanging(babbler: Served, *, stream: bool) -> asyncio.StreamWriter:
    """A connection that asked for a long generation and never reads its answer."""
    _, writer = await asyncio.open_connection(LOOPBACK, babbler.port)
    body = msgspec.json.encode(request_body(stream=stream, **ENDLESS))
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: b\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    async with asyncio.timeout(TIMINGS.stream_open_s):
        await writer.drain()
    return writer
