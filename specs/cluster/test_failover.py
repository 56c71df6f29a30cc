"""A replica or a worker dies: who is disturbed, who is not, and what everybody says of it afterwards.

Windows come from the fleet's own timings, so the same stories run on production's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import consistently, eventually, never

if TYPE_CHECKING:
    from blackstart.fleet import Fleet
    from inference_fleet.settings import Timings


def _settles_within(timings: Timings) -> float:
    """A dead worker reads offline within this, also when the replica that judged nodes has just died."""
    return (
        timings.offline_within_s
        + timings.instance_liveness_s
        + timings.health_lease_s
        + timings.health_tick_s
    )


def _offline_after_a_kill(fleet: Fleet, *, via: int) -> None:
    """The control of every 'stayed healthy': the same probe must see a worker that dies."""
    fleet.worker(0).kill()
    eventually(
        lambda: fleet.status(0, via=via), "offline", within=_settles_within(fleet.timings), watch=fleet.watch
    )


@pytest.mark.production
@pytest.mark.holds("B-218", "B-246", "B-247")
@pytest.mark.cluster(frontends=2, workers=1)
def test_the_death_of_another_replica_never_disturbs_a_worker_that_did_not_depend_on_it(fleet: Fleet) -> None:
    assert fleet.owner_index(0) == 0
    fleet.frontend(1).kill()
    # the window outlasts the slowest reaction to a dead heartbeat and to a dead replica
    window = fleet.timings.offline_within_s + fleet.timings.instance_liveness_s
    consistently(lambda: fleet.status(0, via=0), "healthy", during=window, watch=fleet.watch)
    assert fleet.presence(0, via=0) == "connected"
    listed = [instance["id"] for instance in fleet.get("/api/instances", via=0).json()]
    assert listed == ["frontend-0"], f"a dead replica's row was never swept: {listed}"
    _offline_after_a_kill(fleet, via=0)


@pytest.mark.production
@pytest.mark.holds("B-219", "B-246")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_cold_restarted_replica_rehydrates_its_roster_and_goes_on_taking_heartbeats(fleet: Fleet) -> None:
    before = fleet.roster(via=0)
    assert before.node("worker-0") is not None
    fleet.frontend(0).restart(cold=True)
    after = fleet.roster(via=0)
    assert after.ids == before.ids, "the roster was not in the database"
    fleet.wait_owner(0, 0)
    beat = fleet.roster(via=0).value("worker-0", "last_heartbeat")
    # a start that took long finds its heartbeat stale and says so until the next one
    eventually(
        lambda: fleet.status(0, via=0), "healthy", within=fleet.timings.offline_within_s, watch=fleet.watch
    )
    # no heartbeat from before the restart is fresh at the end of this window: it has to take new ones
    window = fleet.timings.offline_within_s + fleet.timings.heartbeat_s
    consistently(lambda: fleet.status(0, via=0), "healthy", during=window, watch=fleet.watch)
    assert fleet.roster(via=0).value("worker-0", "last_heartbeat") > beat
    _offline_after_a_kill(fleet, via=0)


@pytest.mark.production
@pytest.mark.holds("B-220")
@pytest.mark.cluster(frontends=2, workers=2)
def test_a_dead_worker_settles_to_exactly_offline_on_every_replica(fleet: Fleet) -> None:
    def everywhere() -> list[str]:
        return [fleet.status(0, via=0), fleet.status(0, via=1)]

    assert everywhere() == ["healthy", "healthy"]
    fleet.worker(0).kill()
    eventually(everywhere, ["offline", "offline"], within=_settles_within(fleet.timings), watch=fleet.watch)
    # it stays there: a status that flaps would be seen within a few ticks
    consistently(
        everywhere, ["offline", "offline"], during=3 * fleet.timings.health_tick_s, watch=fleet.watch
    )
    # the control: the living worker beside it is judged by the same monitor
    assert fleet.status(1, via=0) == fleet.status(1, via=1) == "healthy"


@pytest.mark.holds("B-224", "B-193")
@pytest.mark.cluster(frontends=2, workers=1)
def test_killing_the_owner_rehomes_its_worker_onto_the_survivor(fleet: Fleet) -> None:
    before = fleet.wait_owner(0, 0)
    timings = fleet.timings

    def kill() -> None:
        row = fleet.owner_row(0)
        assert row is not None
        assert row["epoch"] == before.epoch, "it dialled again, and nobody was killed"
        fleet.frontend(0).kill()

    # the first dials after a session are a moment apart, so a handshake's time is ample for a re-home. Without the kill
    # nothing moves for so long; after it, in a window of the same length, the survivor is the owner
    never(lambda: fleet.owner_index(0), 1, during=timings.handshake_s, control=kill, watch=fleet.watch)
    after = fleet.wait_owner(0, 1)
    assert after.epoch > before.epoch
    assert fleet.chat(via=1).route == "local"
    eventually(
        lambda: fleet.presence(0, via=1), "connected", within=timings.instance_liveness_s, watch=fleet.watch
    )


@pytest.mark.holds("B-184", "B-181")
@pytest.mark.cluster(frontends=2, workers=1)
def test_a_replica_that_is_stopped_gracefully_hands_its_worker_over_and_exits_with_0(fleet: Fleet) -> None:
    epoch = fleet.wait_owner(0, 0).epoch
    ended = fleet.frontend(0).stop()
    assert ended.code == 0
    assert fleet.wait_owner(0, 1).epoch > epoch
    assert fleet.presence(0, via=1) == "connected"
    fleet.frontend(0).restart(cold=True)
    assert fleet.roster(via=0).names == ("worker-0",)


@pytest.mark.holds("B-186")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_killed_replica_is_dead_at_once_and_never_read_alive_as_a_zombie(fleet: Fleet) -> None:
    node = fleet.frontend(0)
    pid = node.pid
    death = node.kill()
    assert not node.alive
    assert death.exit.signal is not None
    assert fleet.frontend(0).handle.exit == death.exit
    node.start()
    assert fleet.frontend(0).alive
    assert node.pid != pid
