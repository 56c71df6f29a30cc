"""Postgres goes away under load and comes back: nothing is judged by its absence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from blackstart.cluster.waiting import eventually
from blackstart.infra import Harm

if TYPE_CHECKING:
    from blackstart.fleet import Fleet


@pytest.mark.cluster(
    frontends=2,
    workers=2,
    own_postgres=True,
    # a restart is shorter than either window, and who waits for the database gives up before it returns
    timings_s={"instance_liveness_s": 6.0, "heartbeat_stale_s": 12.0, "database_connect_s": 2.0},
)
def test_when_postgres_is_restarted_under_load_claims_return_and_nothing_is_reaped(fleet: Fleet) -> None:
    assert fleet.server is not None
    timings = fleet.timings
    models = _models(fleet)
    # load that outlasts the outage, over tunnels that need no database
    tokens = round(20 * 1.75 * timings.database_connect_s)
    streams = [
        fleet.open_chat(
            via=via, model=f"babbler-{worker}", stream=True, max_tokens=tokens, pace=20.0, seed=via
        )
        for via in (0, 1)
        for worker in (0, 1)
    ]
    for stream in streams:
        stream.wait_for_text(within=timings.stream_open_s)
    marks = {frontend.name: frontend.log.mark() for frontend in fleet.frontends}
    epochs = {worker: fleet.wait_owner(worker, 0).epoch for worker in (0, 1)}
    fleet.server.kill(Harm.KILL)
    with pytest.raises(psycopg.OperationalError):  # the control: it was away, for everybody
        psycopg.connect(fleet.database_url)
    # each of them asks the database who calls, and waits for it no longer than it may
    asked = [fleet.open_chat(via=via, max_tokens=1) for via in (0, 1)]
    noticed = timings.instance_beat_s + timings.database_connect_s + timings.database_statement_s
    for frontend in fleet.frontends:
        frontend.log.wait_for("database-unavailable", after=marks[frontend.name], within=noticed)
    for pending in asked:
        chat = pending.wait(within=noticed)
        assert (chat.status, chat.error) == (503, "database_unavailable"), str(chat)
    fleet.server.restart()
    # a claim that was lost with the last writes is missed by whoever still holds the tunnel
    fleet.records.rows("UPDATE connections SET owner = '', disconnected_at = clock_timestamp()")
    for stream in streams:
        chat = stream.wait(within=timings.request_s)
        assert chat.ok, f"a stream that needs no database ended {chat}"
    within = timings.instance_liveness_s + timings.database_connect_s + timings.database_statement_s
    for worker in (0, 1):
        row = eventually(
            lambda worker=worker: fleet.owner_row(worker),  # type: ignore[misc]  # bound now
            lambda seen: seen is not None and seen["owner"] == "frontend-0",
            within=within,
            watch=fleet.watch,
        )
        assert row is not None
        assert row["epoch"] == epochs[worker], "the tunnel never broke, so its claim returns as it was"
    fleet.wait_ready()
    assert fleet.get("/api/reaps", via=0).json() == []
    assert _models(fleet) == models
    assert fleet.chat(via=1).ok
    _a_worker_that_dies_now_is_reaped(fleet)


def _a_worker_that_dies_now_is_reaped(fleet: Fleet) -> None:
    """The control: whoever judges nodes judges again. Its last heartbeat is aged, since this fleet's windows are long."""
    timings, node = fleet.timings, fleet.node_id(1)
    fleet.worker(1).kill()
    fleet.records.rows(
        "UPDATE nodes SET last_heartbeat = last_heartbeat - %(age)s * interval '1 second' WHERE id = %(node)s",
        age=timings.heartbeat_stale_s,
        node=node,
    )
    eventually(
        lambda: [(reap["node_id"], reap["action"]) for reap in fleet.get("/api/reaps", via=0).json()],
        [(node, "models-deleted"), (node, "demoted")],
        within=timings.keepalive_timeout_s + timings.health_lease_s + 2 * timings.health_tick_s,
        watch=fleet.watch,
    )


def _models(fleet: Fleet) -> set[tuple[str, str, int]]:
    rows = fleet.records.rows("SELECT node_id, name, port FROM node_models")
    return {(row["node_id"], row["name"], row["port"]) for row in rows}
