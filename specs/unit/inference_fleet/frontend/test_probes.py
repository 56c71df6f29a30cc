"""What machines ask a replica: probes, metrics, and the shape of what is not there."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until

from inference_fleet.route import RouteOutcome
from inference_fleet.tunnel import REFUSALS, ResetCause, StallSide

from .served import backend, hang, register, served, worker

if TYPE_CHECKING:
    from blackstart.infra import Infra

_PRESENCE = 'blackstart_presence{{state="{}"}}'
_DEPARTED = """
INSERT INTO connections (node_id, epoch, disconnected_at)
VALUES (%(id)s, nextval('connection_epochs'), clock_timestamp() - %(ago)s::interval)
"""
PAGE = (Path(__file__).parents[4] / "docs" / "frontends.md").read_text()
NAMES = [
    "blackstart_tunnels",
    "blackstart_streams_open",
    "blackstart_relayed_bytes_total",
    'blackstart_presence{state="connected"}',
    'blackstart_presence{state="gone"}',
    'blackstart_tunnel_carrier{path="asgi"}',
    "blackstart_tasks",
    "blackstart_event_loop_lag_seconds",
    *(f'blackstart_stream_resets_total{{cause="{cause}"}}' for cause in ResetCause),
    *(f'blackstart_stream_stalls_total{{side="{side}"}}' for side in StallSide),
    *(f'blackstart_dials_total{{outcome="{outcome}"}}' for outcome in RouteOutcome),
    *(f'blackstart_refusals_total{{code="{rule.code}"}}' for rule in REFUSALS.values()),
    'blackstart_refusals_total{code="unknown"}',
]


def test_every_number_is_there_before_anything_happened(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            told = (await front.http.get("/metrics")).text
            for name in NAMES:
                assert f"\n{name} " in told, f"{name} is not there from the start"
            assert await front.metric("blackstart_tasks") > 0
            content_type = (await front.http.get("/metrics")).headers["content-type"]
            assert content_type.startswith("text/plain; version=0.0.4")

    asyncio.run(story())


def test_presence_counts_the_nodes_that_exist_by_what_the_roster_says_of_each(
    url: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front, worker(front, "up"):
            ids = {}
            for name in ("never", "moving", "left", "deregistered"):
                registered = await register(front, name, credential=f"of {name}", boot_id="boot-0001")
                ids[name] = registered.json()["id"]
            grace_s = TIMINGS.reconnect_grace_s
            for name, ago_s in (("moving", -TIMINGS.start_s), ("left", grace_s), ("deregistered", grace_s)):
                await front.replica.db.change(_DEPARTED, {"id": ids[name], "ago": timedelta(seconds=ago_s)})
            await front.http.post(
                f"/api/node/{ids['deregistered']}/deregister",
                headers={"Authorization": "Bearer of deregistered"},
            )
            await front.admin()
            told = Counter(node["presence"] for node in (await front.http.get("/api/nodes")).json())
            assert told == dict.fromkeys(("connected", "unknown", "reconnecting", "gone"), 1)

            async def counted() -> bool:
                states = {state: await front.metric(_PRESENCE.format(state)) for state in told}
                return states == told

            await until(counted, "the gauge and the roster disagree")

    asyncio.run(story())


def test_open_streams_are_told_while_they_run_at_every_replica_they_cross(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            backend(hang) as process,
            served(url, tmp_path) as owner,
            served(url, tmp_path, instance_id="b") as asker,
            worker(owner, models={"m": process}),
        ):
            await asker.admin()

            async def told() -> tuple[float, float]:
                name = "blackstart_streams_open"
                return await owner.metric(name), await asker.metric(name)

            async def are(streams: tuple[int, int]) -> None:
                async def seen() -> bool:
                    return await told() == streams

                await until(seen, f"{streams} streams were never told")

            await are((0, 0))
            body = {"model": "m", "messages": []}
            asking = asyncio.create_task(asker.http.post("/v1/chat/completions", json=body))
            await until(lambda: process.requests)
            assert await told() == (2, 1), "the owner's: one from its peer, one to its worker"
            asking.cancel()
            await asyncio.wait([asking])
            await are((0, 0))

    asyncio.run(story())


def test_the_page_names_every_number_that_is_served_and_no_other(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            lines = (await front.http.get("/metrics")).text.splitlines()
        kinds = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
        served_names = {name for name in kinds if not name.endswith("_created")}
        assert served_names == set(re.findall(r"`(blackstart_[a-z_]+)(?:\{\w+\})?`", PAGE))

    asyncio.run(story())


def test_what_is_not_there_is_named_in_the_same_shape(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            await front.admin()
            for method, path, status, code in (
                ("GET", "/nowhere", 404, "not_found"),
                ("GET", "/api/node/register", 405, "method_not_allowed"),
                ("POST", "/healthz", 405, "method_not_allowed"),
                ("GET", "/api/nodes/unknown", 404, "node_not_found"),
                ("GET", "/api/nodes/a%00b", 400, "invalid"),
                ("GET", "/api/nodes/a%E2%80%AEb", 400, "invalid"),
                ("GET", "/api/nodes/" + "x" * 300, 400, "invalid"),
                ("GET", "/api/nodes/unknown/explain", 404, "node_not_found"),
                ("GET", "/api/reaps?limit=0", 400, "invalid"),
                ("GET", "/api/reaps?limit=lots", 400, "invalid"),
                ("GET", "/api/reaps?limit=000000001001", 400, "invalid"),
            ):
                reply = await front.http.request(method, path)
                assert (reply.status_code, reply.json()["error"]["code"]) == (status, code), path

    asyncio.run(story())


def test_what_nobody_expected_is_a_500_in_the_same_shape(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            await front.admin()
            front.replica.roster = None  # type: ignore[assignment] # the fault: a part that is not there
            reply = await front.http.get("/api/nodes")
            assert (reply.status_code, reply.json()["error"]["code"]) == (500, "internal")
            assert "NoneType" not in reply.text

    asyncio.run(story())


@pytest.mark.holds("B-153")
def test_the_roster_is_refused_to_whoever_shows_nothing(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            for path in (
                "/api/nodes",
                "/api/nodes/x",
                "/api/nodes/x/explain",
                "/api/reaps",
                "/api/instances",
            ):
                reply = await front.http.get(path)
                assert reply.status_code == 401, f"anybody was answered at {path}"
                assert reply.json()["error"]["code"] == "unauthorized", path
            await front.admin()
            assert (await front.http.get("/api/nodes")).status_code == 200

    asyncio.run(story())


def test_instances_are_listed_with_their_addresses(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as one, served(url, tmp_path, instance_id="b") as two:
            await one.admin()
            rows = {row["id"]: row for row in (await one.http.get("/api/instances")).json()}
            assert set(rows) == {"a", "b"}
            assert rows["b"]["address"] == two.url.removeprefix("http://")
            assert {"id", "address", "started_at", "last_seen"} <= set(rows["a"])

    asyncio.run(story())


def test_an_outage_of_the_database_degrades_and_names_itself(infra: Infra, tmp_path: Path) -> None:
    from inference_fleet.store import migrate_sync  # noqa: PLC0415 -- this story has a server of its own

    server = infra.own_server()
    migrate_sync(server.url())

    async def story() -> None:
        async with served(server.url(), tmp_path) as front:
            await front.admin()
            assert (await front.http.get("/readyz")).json()["status"] == "ready"
            await asyncio.to_thread(server.kill)
            try:
                reply = await front.http.get("/api/nodes")
                assert (reply.status_code, reply.json()["error"]["code"]) == (503, "database_unavailable")

                async def degraded() -> bool:
                    ready = await front.http.get("/readyz")
                    assert ready.status_code == 200, "an outage of the database takes no replica out"
                    return bool(ready.json()["status"] == "degraded" and ready.json()["reason"])

                await until(degraded)
                assert (await front.http.get("/healthz")).status_code == 200
            finally:
                await asyncio.to_thread(server.restart)

            async def ready_again() -> bool:
                return bool((await front.http.get("/readyz")).json()["status"] == "ready")

            await until(ready_again)
            assert (await front.http.get("/api/nodes")).status_code == 200

    asyncio.run(story())


def test_a_replica_that_is_leaving_is_not_ready(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            await front.replica.go_away()
            reply = await front.http.get("/readyz")
            assert (reply.status_code, reply.json()["status"]) == (503, "leaving")
            assert (await front.http.get("/healthz")).status_code == 200

    asyncio.run(story())
