"""Chat through real replicas, real tunnels and scripted model processes: locally, relayed, broken, abandoned."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until

from .served import EVENTS_HEAD, answer, backend, beat, chunk, hang, served, worker

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

    asyncio.run(story())


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


@pytest.mark.holds("B-61")
def test_a_process_its_worker_disowns_is_passed_over_and_its_row_reaped(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            backend(answer(REPLY)) as gone,
            backend(answer(REPLY)) as there,
            served(url, tmp_path) as front,
            worker(front, "worker-0", {"m": gone}, serving={}) as disowning,
            worker(front, "worker-1", {"m": there}) as serving,
        ):
            await front.admin()
            for _ in range(2):
                reply = await front.http.post("/v1/chat/completions", json=ASK)
                assert reply.status_code == 200, reply.text
                assert reply.headers["x-blackstart-node"] == serving.node_id
            reaps = (await front.http.get("/api/reaps")).json()
            assert len(reaps) == 1, "what the worker said of its process was not acted on"
            reap = reaps[0]
            assert (reap["node_id"], reap["action"]) == (disowning.node_id, "model-deleted")
            assert reap["evidence"]["refusal"] == "unavailable"
            assert await front.metric('blackstart_dials_total{outcome="answered"}') == 1
            assert gone.started == 0

    asyncio.run(story())


@pytest.mark.holds("B-54", "B-55")
def test_a_worker_nobody_can_reach_is_no_route_and_loses_nothing(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with backend(answer(REPLY)) as process, served(url, tmp_path) as front:
            await front.admin()
            async with worker(front, models={"m": process}):
                assert (await front.http.post("/v1/chat/completions", json=ASK)).status_code == 200

            async def departed() -> bool:
                (node,) = (await front.http.get("/api/nodes")).json()
                return bool(node["presence"] == "reconnecting")

            await until(departed)

            reply = await front.http.post("/v1/chat/completions", json=ASK)

            assert reply.status_code == 503
            error = reply.json()["error"]
            assert error["code"] == "no_route"
            assert "no route" in error["message"]
            assert (await front.http.get("/api/reaps")).json() == []
            (node,) = (await front.http.get("/api/nodes")).json()
            assert node["model_count"] == 1

            unserved = await front.http.post("/v1/chat/completions", json={**ASK, "model": "other"})
            assert (unserved.status_code, unserved.json()["error"]["code"]) == (404, "model_not_found")

    asyncio.run(story())


def test_a_model_is_loading_only_while_a_node_that_is_placed_on_starts_it(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            backend(answer(REPLY)) as process,
            served(url, tmp_path) as front,
            worker(front, models={"m": process}) as held,
        ):
            await front.admin()
            mine = {"Authorization": f"Bearer {held.credential}"}

            async def asked(model: str, state: str) -> tuple[int, str, str]:
                report = {"m": process}
                await beat(front, held.node_id, held.credential, held.boot_id, report, state=state)
                reply = await front.http.post("/v1/chat/completions", json={**ASK, "model": model})
                error = reply.json().get("error", {"code": "", "message": ""})
                if reply.status_code == 503:
                    assert int(reply.headers["retry-after"]) >= TIMINGS.heartbeat_s
                return reply.status_code, error["code"], error["message"]

            status, code, text = await asked("m", "starting")
            assert (status, code) == (503, "loading"), f"a model that starts: {text}"
            assert "worker-0" in text
            assert "; try: " in text
            assert (await asked("other", "starting"))[:2] == (404, "model_not_found"), "nobody has it"

            status, code, text = await asked("m", "failed")
            assert (status, code) == (503, "no_route"), f"a model that failed: {text}"
            assert "no route" in text
            assert "its process failed" in text

            assert (await front.http.post(f"/api/node/{held.node_id}/drain", headers=mine)).is_success
            status, code, text = await asked("m", "starting")
            assert (status, code) == (503, "no_route"), f"nothing is placed on this node: {text}"
            assert "worker-0 is draining" in text

            assert (await front.http.post(f"/api/node/{held.node_id}/resume", headers=mine)).is_success
            assert await asked("m", "ready") == (200, "", ""), "the control"
            assert process.started == 1, "one that was not ready was given work"

    asyncio.run(story())


def test_a_callers_budget_shortens_and_names_nobody(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            backend(hang) as process,
            served(url, tmp_path) as owner,
            served(url, tmp_path, instance_id="b") as other,
            worker(owner, models={"m": process}),
        ):
            for asked in (owner, other):
                await asked.admin()
                asking = asyncio.create_task(
                    asked.http.post(
                        "/v1/chat/completions", json=ASK, headers={"X-Blackstart-Budget-Ms": "200"}
                    )
                )
                _, late = await asyncio.wait({asking}, timeout=TIMINGS.start_s / 2)
                asking.cancel()
                assert not late, "the caller's own budget did not end its request"
                reply = await asking
                assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
            await until(lambda: process.ended == process.started == 2)
            nonsense = await owner.http.post(
                "/v1/chat/completions", json=ASK, headers={"X-Blackstart-Budget-Ms": "0"}
            )
            assert nonsense.status_code == 400

    asyncio.run(story())


def test_load_spreads_over_candidates_by_what_is_in_flight(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            backend(hang) as one,
            backend(hang) as two,
            served(url, tmp_path) as front,
            worker(front, "worker-0", {"m": one}),
            worker(front, "worker-1", {"m": two}),
        ):
            await front.admin()
            asking = [
                asyncio.create_task(front.http.post("/v1/chat/completions", json=ASK)) for _ in range(6)
            ]
            await until(lambda: one.started + two.started == 6)
            assert one.started == two.started == 3
            counts = {node["in_flight_count"] for node in (await front.http.get("/api/nodes")).json()}
            assert counts == {3}
            for task in asking:
                task.cancel()
            await until(lambda: one.ended + two.ended == 6)

    asyncio.run(story())


BAD_BODIES = {
    "empty": (b"", "the body is not JSON"),
    "not JSON": (b"not json", "the body is not JSON"),
    "no model": (b'{"messages": []}', "`model`"),
    "a model that is no text": (b'{"model": 5}', "`$.model`"),
    "NUL in the name": (b'{"model": "a\\u0000b"}', "`$.model`"),
    "a right-to-left mark in the name": (b'{"model": "a\\u202eb"}', "`$.model`"),
    "a name of 300 characters": (b'{"model": "' + b"x" * 300 + b'"}', "`$.model`"),
    "nested 10,000 deep": (b'{"model": "m", "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested deeper"),
    "a stream that is no flag": (b'{"model": "m", "stream": "yes"}', "`$.stream`"),
}
"""What is wrong, the body, and the thing the answer has to name."""


def test_bad_input_names_the_thing_and_the_remedy(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            refused = await front.http.post("/v1/chat/completions", content=b"not json")
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
            await front.admin()
            for what, (body, named) in BAD_BODIES.items():
                reply = await front.http.post("/v1/chat/completions", content=body)
                error = reply.json()["error"]
                assert (reply.status_code, error["code"]) == (400, "invalid"), what
                assert named in error["message"], f"{what} is not named: {error['message']}"
                assert "; try: " in error["message"], f"{what} has no remedy: {error['message']}"
            budget = {"X-Blackstart-Budget-Ms": "soon"}
            reply = await front.http.post("/v1/chat/completions", json=ASK, headers=budget)
            text = reply.json()["error"]["message"]
            assert text.startswith("x-blackstart-budget-ms=soon: "), text
            assert "; try: " in text, f"a budget has no remedy: {text}"
            reply = await front.http.get("/api/nodes/-n")
            error = reply.json()["error"]
            assert (reply.status_code, error["code"]) == (400, "invalid")
            assert "'-n' cannot be the id of a node" in error["message"]
            assert "; try: " in error["message"], f"an id has no remedy: {error['message']}"
            control = await front.http.post("/v1/chat/completions", json=ASK)
            assert control.json()["error"]["code"] == "model_not_found"
            assert "; try: " in control.json()["error"]["message"]

    asyncio.run(story())


def test_a_body_at_the_cap_passes_and_one_byte_more_does_not(url: str, tmp_path: Path) -> None:
    cap = 8 * 1024 * 1024

    def padded(size: int) -> bytes:
        head, tail = b'{"model": "m", "pad": "', b'"}'
        return head + b"x" * (size - len(head) - len(tail)) + tail

    async def story() -> None:
        async with (
            backend(answer(REPLY)) as process,
            served(url, tmp_path) as front,
            worker(front, models={"m": process}),
        ):
            await front.admin()
            at, past = padded(cap), padded(cap + 1)
            assert (await front.http.post("/v1/chat/completions", content=at)).content == REPLY
            assert process.requests[0].endswith(at)
            for content in (past, _in_pieces(past)):
                reply = await front.http.post("/v1/chat/completions", content=content)
                error = reply.json()["error"]
                assert (reply.status_code, error["code"]) == (413, "body_too_large")
                assert f"{cap} bytes" in error["message"]
                assert "; try: " in error["message"], f"a body has no remedy: {error['message']}"
            assert len(process.requests) == 1

    asyncio.run(story())


async def _in_pieces(body: bytes) -> Any:
    for at in range(0, len(body), 1 << 20):
        yield body[at : at + (1 << 20)]


def test_models_are_what_somebody_can_serve_now(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with backend(answer(REPLY)) as process, served(url, tmp_path) as front:
            assert (await front.http.get("/v1/models")).status_code == 401
            await front.admin()
            assert (await front.http.get("/v1/models")).json()["data"] == []
            async with worker(front, models={"m": process}):
                (model,) = (await front.http.get("/v1/models")).json()["data"]
                assert model["id"] == "m"

    asyncio.run(story())
