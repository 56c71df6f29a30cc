"""Presence is judged by one clock, the database's: a replica that is an hour off sees what the others see."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import consistently, eventually
from blackstart.faults.clock import ClockSkew
from blackstart.faults.fault import standing
from blackstart.fleet.http import client_of

if TYPE_CHECKING:
    from blackstart.fleet import Fleet
    from blackstart.process import Mark

HOUR_S = 3600.0


@pytest.mark.needs("faketime")
@pytest.mark.holds("B-1", "B-2", "B-21")
@pytest.mark.cluster(frontends=2, workers=1, faketime=("frontend-0",))
@pytest.mark.parametrize("offset_s", [HOUR_S, -HOUR_S], ids=["ahead", "behind"])
def test_a_replica_an_hour_off_changes_no_verdict_about_presence(fleet: Fleet, offset_s: float) -> None:
    timings = fleet.timings
    mark = fleet.frontend(0).log.mark()
    skew = ClockSkew(
        fleet.clocks["frontend-0"], node="frontend-0", offset_s=offset_s, read=lambda: _believes(fleet, mark)
    )

    def verdicts() -> list[tuple[str, str]]:
        looks = [fleet.roster(via=via) for via in (0, 1)]
        return [(look.value("worker-0", "presence"), look.value("worker-0", "status")) for look in looks]

    with standing(
        skew,
        journal=fleet.journal,
        ledger=fleet.spawner.ledger,
        user=None,
        within_s=timings.handshake_s,
        spec=fleet.spec,
    ):
        # the skew is seen in the replica's own log stamps before the window begins, and again at its end
        window = timings.instance_liveness_s + timings.heartbeat_stale_s
        consistently(verdicts, [("connected", "healthy")] * 2, during=window, watch=fleet.watch)
        fleet.wait_owner(0, 0)
        for via in (0, 1):
            assert fleet.chat(via=via).ok, "tokens between replicas are dated by a skewed clock"
        assert fleet.get("/api/reaps", via=1).json() == []
        # the control: a worker that really dies is seen by both, within the same windows
        fleet.worker(0).kill()
        gone = timings.offline_within_s + timings.health_lease_s + timings.instance_liveness_s
        eventually(lambda: {status for _, status in verdicts()}, {"offline"}, within=gone, watch=fleet.watch)


def _believes(fleet: Fleet, mark: Mark) -> float | None:
    """The time in the newest line of replica 0's log; a peer link without a token makes it write one."""
    with client_of(fleet.frontend(0).url, within=fleet.timings.handshake_s) as client:
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
    lines = [line for line in fleet.frontend(0).log.text(after=mark).splitlines() if line.startswith("{")]
    return dt.datetime.fromisoformat(json.loads(lines[-1])["time"]).timestamp() if lines else None
