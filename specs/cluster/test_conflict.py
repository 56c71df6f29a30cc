"""Two processes with one node's credential: the newest has the tunnel, both are named, and they cannot fight fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from blackstart.cluster.waiting import consistently, eventually
from blackstart.fleet.strangers import stranger

if TYPE_CHECKING:
    from blackstart.fleet import Fleet


# longer than two boots take to change hands, so that the conflict stands as long as both are there, and soon over then
@pytest.mark.cluster(frontends=2, workers=1, timings_s={"reconnect_grace_s": 3.0})
def test_two_boots_of_one_node_are_named_counted_and_damped(fleet: Fleet) -> None:
    first = _row(fleet)
    assert first["conflicts"] == 0, "there was a conflict before there were two"
    credential = fleet.worker(0).place.data_dir / "node-credential"
    timings = fleet.timings
    with stranger(fleet, "worker-0", credential=credential) as twin:
        seen = eventually(
            lambda: _row(fleet),
            lambda row: row["conflicts"] > 0,
            within=timings.start_s,
            watch=[twin, *fleet.watch],
        )
        opened = _changes(fleet)
        assert {seen["boot_id"], seen["previous_boot_id"]} > {first["boot_id"]}
        twin_boot = seen["boot_id"] if seen["boot_id"] != first["boot_id"] else seen["previous_boot_id"]
        # named in the roster, both of them, to whoever asks whichever replica
        for via in (0, 1):
            reason = fleet.roster(via=via).value("worker-0", "status_reason")
            assert "boot-conflict" in reason
            assert first["boot_id"] in reason
            assert twin_boot in reason
        # damped: the loser is refused, and told by whom and for how long
        loser = fleet.worker(0).log
        said = loser.wait_for(
            "another boot of this node holds the tunnel", within=2 * timings.conflict_damping_s
        )
        assert "boot_conflict" in said.string
        began = _row(fleet)["conflicts"]
        eventually(
            lambda: _row(fleet)["conflicts"] > began,
            True,
            within=4 * timings.conflict_damping_s,
            watch=[twin],
        )
        # ... so there is at most one change in each damping window of the time between the two looks
        closed = _changes(fleet)
        span_s, changes = closed["at"] - opened["at"], closed["conflicts"] - opened["conflicts"]
        most = span_s / timings.conflict_damping_s + 1
        assert 1 <= changes <= most, f"{changes} changes of hands in {span_s:.2f} s, {most:.1f} are allowed"
    text = "".join(frontend.log.text() for frontend in fleet.frontends)
    assert f"boot {twin_boot} took it from boot {first['boot_id']}" in text
    assert sum(fleet.metrics(via).total("blackstart_tunnel_conflicts_total") for via in (0, 1)) > 0
    # the control: alone again, the first process holds its node without a restart, is heard, and nothing is held against it
    within = 2 * timings.conflict_damping_s + timings.reconnect_grace_s + timings.offline_within_s
    alone = ("healthy", "", first["boot_id"])
    eventually(lambda: _standing(fleet), alone, within=within, watch=fleet.watch)
    consistently(
        lambda: _standing(fleet),
        alone,
        during=timings.offline_within_s + timings.health_tick_s,
        watch=fleet.watch,
    )


def _standing(fleet: Fleet) -> tuple[Any, ...]:
    roster = fleet.roster(via=0)
    return tuple(roster.value("worker-0", key) for key in ("status", "status_reason", "boot_id"))


def _changes(fleet: Fleet) -> dict[str, Any]:
    """How often the node changed hands so far, and when that was read, by the clock that damps."""
    (row,) = fleet.records.rows(
        "SELECT conflicts, extract(epoch FROM statement_timestamp())::float8 AS at FROM connections"
    )
    return row


def _row(fleet: Fleet) -> dict[str, Any]:
    row = fleet.owner_row(0)
    assert row is not None
    return row
