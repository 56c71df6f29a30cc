"""Where a chat goes, who is passed over, and what is told where nobody can take it: real replicas and tunnels."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until

from .served import answer, backend, beat, hang, served, worker

if TYPE_CHECKING:
    from pathlib import Path

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
REPLY = json.dumps({"choices": [{"message": {"content": "hello yourself"}}]}).encode()


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


@pytest.mark.holds("B-50", "B-53")
def test_a_chat_goes_to_the_address_of_the_process_that_was_chosen_and_to_no_other(
    url: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with (
            backend(answer(REPLY)) as one,
            backend(answer(REPLY)) as two,
            backend(answer(REPLY)) as other,
            served(url, tmp_path) as front,
            worker(front, "worker-0", {"m": one, "other": other}),
            worker(front, "worker-1", {"m": two}),
        ):
            await front.admin()
            for model in ("m", "m", "other"):
                reply = await front.http.post("/v1/chat/completions", json={**ASK, "model": model})
                assert reply.status_code == 200, f"no process of {model} has that address: {reply.text}"
            for process, model in ((one, "m"), (two, "m"), (other, "other")):
                (request,) = process.requests
                assert json.loads(request.partition(b"\r\n\r\n")[2])["model"] == model

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
                        "/v1/chat/completions", json=ASK, headers={"X-Blackstart-Budget-Ms": "1000"}
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
