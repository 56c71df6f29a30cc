"""Chat through real replicas, real tunnels and scripted model processes: locally, relayed, broken, abandoned."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until

from .served import EVENTS_HEAD, answer, backend, chunk, hang, served, worker

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .served import Served

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
REPLY = json.dumps({"choices": [{"message": {"content": "hello yourself"}}]}).encode()


async def _answer_events(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(EVENTS_HEAD + chunk(b'data: {"n": 1}\n\n') + chunk(b"data: [DONE]\n\n") + chunk(b""))
    await writer.drain()


@pytest.mark.holds("B-49", "B-6")
def test_chat_goes_through_the_tunnel_where_it_is_held_and_relayed_from_everywhere_else(
    url: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with (
            backend(answer(REPLY)) as process,
            served(url, tmp_path) as owner,
            served(url, tmp_path, instance_id="b") as other,
            worker(owner, models={"m": process}) as held,
        ):
            await owner.admin()
            await other.admin()

            local = await owner.http.post("/v1/chat/completions", json=ASK)
            relayed = await other.http.post("/v1/chat/completions", json=ASK)

            assert local.content == relayed.content == REPLY
            assert local.headers["x-blackstart-route"] == "local"
            assert relayed.headers["x-blackstart-route"] == "relayed"
            assert relayed.headers["x-blackstart-node"] == held.node_id
            (node,) = (await other.http.get("/api/nodes")).json()
            assert node["owner"] == "a"
            assert await owner.metric("blackstart_relayed_bytes_total") > len(REPLY)
            assert [request.partition(b"\r\n\r\n")[2] for request in process.requests] == [
                json.dumps(ASK, separators=(",", ":")).encode()
            ] * 2

    asyncio.run(story())


def test_which_way_an_answer_came_is_said_only_by_a_replica_that_was_told_to(
    url: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with (
            backend(answer(REPLY)) as process,
            served(url, tmp_path, expose_route=False) as discreet,
            served(url, tmp_path, instance_id="b") as plain,
            worker(discreet, models={"m": process}),
        ):
            said = []
            for front in (discreet, plain):
                await front.admin()
                reply = await front.http.post("/v1/chat/completions", json=ASK)
                assert reply.content == REPLY
                said.append({name for name in reply.headers if name.startswith("x-blackstart-")})
            assert said[0] == set(), "who asks is told of nodes and routes"
            assert said[1] == {"x-blackstart-node", "x-blackstart-route"}, "the control"

    asyncio.run(story())


def test_the_callers_credentials_stay_at_the_replica(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            backend(answer(REPLY)) as process,
            served(url, tmp_path) as front,
            worker(front, models={"m": process}),
        ):
            await front.admin()
            key = (await front.http.post("/api/auth/keys", json={"name": "k"})).json()["key"]
            headers = {
                "Authorization": f"Bearer {key}",
                "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01",
            }
            assert (
                await front.http.post("/v1/chat/completions", json=ASK, headers=headers)
            ).status_code == 200

            (request,) = process.requests
            head = request.partition(b"\r\n\r\n")[0].lower()
            assert key.encode().lower() not in request.lower()
            assert b"cookie" not in head
            assert b"authorization" not in head
            assert b"a" * 32 in head, "the caller's trace goes on"

    asyncio.run(story())


@pytest.mark.parametrize("relayed", [False, True], ids=["local", "relayed"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streaming"])
def test_a_client_that_hangs_up_ends_the_work_at_the_model_process(
    url: str,
    tmp_path: Path,
    relayed: bool,  # noqa: FBT001 -- parametrised
    stream: bool,  # noqa: FBT001 -- parametrised
) -> None:
    async def before_or_after_the_first_byte(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if stream:
            writer.write(EVENTS_HEAD + chunk(b'data: {"n": 1}\n\n'))
        await hang(reader, writer)

    async def story() -> None:
        async with (
            backend(before_or_after_the_first_byte) as process,
            served(url, tmp_path) as owner,
            served(url, tmp_path, instance_id="b") as other,
            worker(owner, models={"m": process}) as held,
        ):
            asked = other if relayed else owner
            await asked.admin()
            lines: list[str] = []
            asking = asyncio.create_task(_read(asked, lines.append, stream=stream))
            await until(lambda: process.started == 1 and (lines or not stream))
            assert asked.replica.in_flight.of(held.node_id) == 1
            assert process.ended == 0, "the control: it runs for as long as the client is there"

            asking.cancel()

            gone = "the work goes on without its client"
            await until(lambda: process.ended == 1, gone, within_s=TIMINGS.stream_open_s)
            await until(lambda: asked.replica.in_flight.of(held.node_id) == 0)
            await _reset_is_counted(asked, "aborted")
            if relayed:
                await _reset_is_counted(owner, "peer")
                await _reset_is_counted(owner, "aborted")

    asyncio.run(story())


async def _reset_is_counted(front: Served, cause: str) -> None:
    """One stream of one session of this replica, by what ended it there: a peer link dialled, one accepted, a tunnel."""

    async def counted() -> bool:
        due = f'blackstart_stream_resets_total{{cause="{cause}"}} 1.0'
        return due in (await front.http.get("/metrics")).text.splitlines()

    name = front.replica.settings.instance_id
    await until(counted, f"replica {name} counted no reset as {cause}", within_s=TIMINGS.stream_open_s)


async def _read(asked: Served, told: Callable[[str], None], *, stream: bool) -> None:
    async with asked.http.stream("POST", "/v1/chat/completions", json={**ASK, "stream": stream}) as reply:
        async for line in reply.aiter_lines():
            told(line)


def test_an_event_stream_that_breaks_ends_in_a_named_error_and_never_as_complete(
    url: str, tmp_path: Path
) -> None:
    async def dies(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + chunk(b'data: {"n": 1}\n\ndata: {"n"'))
        await writer.drain()
        writer.transport.abort()

    async def ends_early(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(EVENTS_HEAD + chunk(b'data: {"n": 1}\n\n') + chunk(b""))
        await writer.drain()

    async def story() -> None:
        async with (
            backend(dies) as dying,
            backend(ends_early) as early,
            backend(_answer_events) as whole,
            served(url, tmp_path) as front,
            worker(front, models={"dying": dying, "early": early, "whole": whole}),
        ):
            await front.admin()
            for model, last in (("dying", "stream_broken"), ("early", "stream_broken"), ("whole", "")):
                reply = await front.http.post(
                    "/v1/chat/completions", json={**ASK, "model": model, "stream": True}
                )
                events = [line for line in reply.text.splitlines() if line]
                assert events[0] == 'data: {"n": 1}'
                if last:
                    assert last in events[-1], f"{model} ended as if it were complete: {events}"
                    error = json.loads(events[-1].removeprefix("data: "))["error"]
                    assert error["code"] == last, f"{model}: {events}"
                    assert len(events) == 2
                else:
                    assert events[-1] == "data: [DONE]"

    asyncio.run(story())


def test_any_other_answer_that_breaks_is_cut_and_not_completed(url: str, tmp_path: Path) -> None:
    async def dies(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        await writer.drain()
        writer.transport.abort()

    async def story() -> None:
        async with (
            backend(dies) as process,
            served(url, tmp_path) as front,
            worker(front, models={"m": process}),
        ):
            await front.admin()
            with pytest.raises(httpx2.RemoteProtocolError):
                await front.http.post("/v1/chat/completions", json=ASK)

    asyncio.run(story())


def test_a_break_before_the_first_byte_is_a_named_error_and_is_not_tried_elsewhere(
    url: str, tmp_path: Path
) -> None:
    async def dies(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()
        await asyncio.sleep(0)

    async def story() -> None:
        async with (
            backend(dies) as one,
            backend(dies) as two,
            served(url, tmp_path) as front,
            worker(front, "worker-0", {"m": one}),
            worker(front, "worker-1", {"m": two}),
        ):
            await front.admin()
            reply = await front.http.post("/v1/chat/completions", json=ASK)
            assert reply.status_code == 502
            assert reply.json()["error"]["code"] in {"stream_broken", "backend_failed"}
            assert one.started + two.started == 1, "a request that may have been worked on is not sent twice"

    asyncio.run(story())
