"""Presence is judged by one clock, the database's: replicas that are an hour off see what the others see."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import consistently, eventually
from blackstart.faults.clock import ClockSkew
from blackstart.faults.fault import standing
from blackstart.fleet.http import client_of

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from blackstart.faults import Standing
    from blackstart.fleet import Fleet
    from blackstart.process import Mark

HOUR_S = 3600.0
OFF = {0: HOUR_S, 1: -HOUR_S}
"""By replica; each holds the tunnel of the worker of its number. The third has the right time."""


@pytest.mark.needs("faketime")
@pytest.mark.holds("B-1", "B-2", "B-21")
@pytest.mark.cluster(frontends=3, workers=2, spread=True, faketime=("frontend-0", "frontend-1"))
def test_replicas_an_hour_ahead_and_behind_change_no_verdict_about_presence(fleet: Fleet) -> None:
    timings = fleet.timings
    replicas, workers = range(3), range(2)

    def verdicts() -> list[tuple[str, str]]:
        looks = [fleet.roster(via=via) for via in replicas]
        return [
            (look.value(f"worker-{worker}", "presence"), look.value(f"worker-{worker}", "status"))
            for look in looks
            for worker in workers
        ]

    def presences(worker: int) -> list[str]:
        return [fleet.presence(worker, via=via) for via in replicas]

    with contextlib.ExitStack() as off:
        for index, offset_s in OFF.items():
            off.enter_context(_skewed(fleet, index, offset_s))
        # the skew is seen in the replica's own log stamps before the window begins, and again at its end
        window = timings.instance_liveness_s + timings.heartbeat_stale_s
        consistently(verdicts, [("connected", "healthy")] * 6, during=window, watch=fleet.watch)
        for worker in workers:
            fleet.wait_owner(worker, worker)
            for via in replicas:
                answer = fleet.chat(via=via, model=f"babbler-{worker}")
                assert answer.ok, f"tokens between replicas are dated by a skewed clock: {answer}"
        assert fleet.get("/api/reaps", via=2).json() == []
        # the control: workers that really die are seen by all, within the same windows. Stamped by its owner's clock a
        # departure would be past its grace at once where that is behind, and not for an hour where it is ahead
        for worker in workers:
            fleet.worker(worker).kill()
            eventually(
                partial(presences, worker),
                ["reconnecting"] * 3,
                within=timings.reconnect_grace_s,
                watch=fleet.watch,
            )
        settled = timings.offline_within_s + timings.health_lease_s + timings.instance_liveness_s
        eventually(
            verdicts,
            [("gone", "offline")] * 6,
            within=max(settled, timings.gone_within_s),
            watch=fleet.watch,
        )


def _skewed(fleet: Fleet, index: int, offset_s: float) -> AbstractContextManager[Standing]:
    """One replica's clock off by so much, as its own log says, until the block ends."""
    node = fleet.frontend(index)
    mark = node.log.mark()
    skew = ClockSkew(
        fleet.clocks[node.name], node=node.name, offset_s=offset_s, read=lambda: _believes(fleet, index, mark)
    )
    return standing(
        skew,
        journal=fleet.journal,
        ledger=fleet.spawner.ledger,
        user=None,
        within_s=fleet.timings.handshake_s,
        spec=fleet.spec,
    )


def _believes(fleet: Fleet, index: int, mark: Mark) -> float | None:
    """The time in the newest line of a replica's log; a peer link without a token makes it write one."""
    node = fleet.frontend(index)
    with client_of(node.url, within=fleet.timings.handshake_s) as client:
        client.get(
            "/api/cluster/peer",
            headers={
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
                "Sec-WebSocket-Protocol": "blackstart.peer.v1",
            },
        )
    lines = [line for line in node.log.text(after=mark).splitlines() if line.startswith("{")]
    return dt.datetime.fromisoformat(json.loads(lines[-1])["time"]).timestamp() if lines else None
