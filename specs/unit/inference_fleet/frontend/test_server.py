"""Leaving in order: not ready first, then go-away to everybody, then running answers, then the server."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until

from inference_fleet.frontend.replica import open_replica
from inference_fleet.frontend.server import bind, serve_replica
from inference_fleet.store import Database

from .served import EVENTS_HEAD, backend, chunk, hang, served, settings_of, worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .served import Served

ASK: dict[str, Any] = {"model": "m", "messages": [], "stream": True}


async def _lines(asked: Served, told: Callable[[str], None]) -> None:
    async with asked.http.stream("POST", "/v1/chat/completions", json=ASK) as reply:
        async for line in reply.aiter_lines():
            told(line)


@pytest.mark.parametrize("relayed", [False, True], ids=["local", "relayed"])
def test_a_running_answer_finishes_while_its_replica_leaves(url: str, tmp_path: Path, relayed: bool) -> None:  # noqa: FBT001 -- parametrised
    finish = asyncio.Event()

    async def slow(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + chunk(b'data: {"n": 1}\n\n'))
        await finish.wait()
        writer.write(chunk(b"data: [DONE]\n\n") + chunk(b""))
        await writer.drain()

    async def story() -> None:
        patient = replace(TIMINGS, drain_wait_s=TIMINGS.start_s)
        async with (
            backend(slow) as process,
            served(url, tmp_path, timings=patient) as owner,
            served(url, tmp_path, instance_id="b", timings=patient) as other,
            worker(owner, models={"m": process}) as held,
        ):
            asked = other if relayed else owner
            await asked.admin()
            seen: list[str] = []
            asking = asyncio.create_task(_lines(asked, seen.append))
            await until(lambda: seen)

            asked.told.set()

            await until(lambda: not asked.replica.ready)
            if not relayed:
                await until(lambda: not held.session.connected)
            assert not asked.run.done(), "the replica waits for what runs"
            finish.set()
            await asking
            assert [line for line in seen if line] == ['data: {"n": 1}', "data: [DONE]"]
            assert await asked.run == 0
            with pytest.raises(httpx2.TransportError):
                await asked.http.get("/healthz")

    asyncio.run(story())


def test_an_answer_that_outlasts_the_wait_ends_in_a_named_error_and_the_replica_ends_with_0(
    url: str, tmp_path: Path
) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + chunk(b'data: {"n": 1}\n\n'))
        await hang(reader, writer)

    async def story() -> None:
        hasty = replace(TIMINGS, drain_wait_s=TIMINGS.reconnect_backoff_min_s)
        async with (
            backend(endless) as process,
            served(url, tmp_path, timings=hasty) as front,
            worker(front, models={"m": process}) as held,
        ):
            await front.admin()
            seen: list[str] = []
            asking = asyncio.create_task(_lines(front, seen.append))
            await until(lambda: seen)
            front.told.set()
            await asking
            assert (
                json.loads([line for line in seen if line][-1].removeprefix("data: "))["error"]["code"]
                == "stream_broken"
            )
            assert await front.run == 0
            await until(lambda: process.ended == 1)
            await held.run
        async with await Database.open(url, timings=TIMINGS, name="spec") as db:
            row = await db.row("SELECT owner, (SELECT count(*) FROM instances) AS instances FROM connections")
        assert row == {"owner": "", "instances": 0}, "its ownership and its instance row went with it"

    asyncio.run(story())


def test_a_loop_that_fails_ends_the_process_with_1(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        settings = settings_of(url, tmp_path)
        with bind(settings) as listening:
            async with open_replica(settings, port=listening.getsockname()[1]) as replica:
                run = asyncio.create_task(serve_replica(replica, listening, asyncio.Event()))
                await until(lambda: replica.ready)
                replica.registry.heartbeat = None  # type: ignore[method-assign,assignment] # the fault: the beat cannot go on
                assert await run == 1

    asyncio.run(story())
