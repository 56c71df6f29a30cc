"""The health monitor: facts in one statement, verdicts from one machine, writes under a lease's epoch."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

import psycopg
import pytest

from inference_fleet.store import DatabaseUnavailable, Leases, list_reaps
from inference_fleet.upkeep import LEASE_NAME, HealthMonitor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specs.unit.inference_fleet.conftest import Play, Stage

    from inference_fleet.upkeep import Change, Verdict

BOOT = "boot-0001"


async def connected(stage: Stage, name: str = "worker", *models: str) -> tuple[str, int]:
    """A healthy node whose tunnel replica `a` holds; its id and epoch."""
    a = stage.registry("a")
    await a.register("10.0.0.1:80")
    node = await stage.node(name, *(models or ("babbler-0",)))
    return node, (await a.claim(node, seen_epoch=0, boot_id=BOOT)).epoch


async def lose_tunnel(stage: Stage, node: str, epoch: int) -> None:
    assert await stage.registry("a").release(node, epoch)
    await stage.gone(node)


async def status(stage: Stage, node: str) -> tuple[str, str, int]:
    view = await stage.roster().node(node)
    assert view is not None
    return view.status, view.status_reason, view.model_count


async def actions(stage: Stage) -> list[str]:
    return [reap.action for reap in await list_reaps(stage.database)]


@pytest.mark.holds("B-140", "B-141")
def test_a_gone_tunnel_demotes_beside_a_fresh_heartbeat_and_costs_no_row(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        assert await stage.monitor().tick() == []  # control: all is well
        await lose_tunnel(stage, node, epoch)
        monitor = stage.monitor("b")
        await stage.age_lease(LEASE_NAME, stage.timings.health_lease_s)
        (change,) = await monitor.tick()
        assert (change.before, change.after, change.reason) == ("healthy", "unhealthy", "tunnel-gone")
        assert await status(stage, node) == ("unhealthy", "tunnel-gone", 1)
        (reap,) = await list_reaps(stage.database)
        assert (reap.action, reap.by, reap.node_name, reap.reason, reap.epoch) == (
            "demoted",
            "b",
            "worker",
            "tunnel-gone",
            epoch,
        )
        assert (reap.evidence["presence"], reap.evidence["heartbeat_fresh"]) == ("gone", True)

    play(story)


@pytest.mark.holds("B-140")
def test_a_demoted_node_is_not_promoted_again_before_its_tunnel_is_back(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        monitor = stage.monitor()
        await lose_tunnel(stage, node, epoch)
        await monitor.tick()
        for _ in range(3):
            await stage.roster().heartbeat(node, stage.heartbeat("babbler-0"))
            assert await monitor.tick() == [], "promoted and demoted at every tick"
        assert await actions(stage) == ["demoted"]
        await stage.registry("a").claim(node, seen_epoch=epoch, boot_id=BOOT)
        (change,) = await monitor.tick()
        assert (change.after, change.reason) == ("healthy", "")
        assert await actions(stage) == ["demoted"]

    play(story)


@pytest.mark.holds("B-141")
def test_an_agent_with_a_gone_tunnel_is_demoted_as_well(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        assert await stage.database.change("UPDATE nodes SET node_type = 'agent'") == 1
        await lose_tunnel(stage, node, epoch)
        assert [change.after for change in await stage.monitor().tick()] == ["unhealthy"]

    play(story)


@pytest.mark.holds("B-146")
def test_a_dead_heartbeat_without_a_tunnel_makes_a_node_offline_and_takes_its_rows(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage, "worker", "one", "two")
        await stage.registry("a").release(node, epoch)
        await stage.age_heartbeat(node, stage.timings.heartbeat_stale_s * 0.8)
        assert await stage.monitor().tick() == []  # control: not stale yet
        await stage.age_lease(LEASE_NAME, stage.timings.health_lease_s)
        await stage.silence(node)
        (change,) = await stage.monitor().tick()
        assert (change.after, change.reason) == ("offline", "heartbeat-dead")
        assert await status(stage, node) == ("offline", "heartbeat-dead", 0)
        assert await actions(stage) == ["models-deleted", "demoted"], "a deletion is not in the journal"
        deleted, _ = await list_reaps(stage.database)
        assert deleted.evidence["models"] == ["one", "two"]

    play(story)


def test_a_dead_heartbeat_beside_a_live_tunnel_is_a_reason_and_costs_no_row(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, _ = await connected(stage)
        await stage.silence(node)
        await stage.monitor().tick()
        assert await status(stage, node) == ("unhealthy", "heartbeat-path", 1)

    play(story)


@pytest.mark.holds("B-147")
def test_an_unhealthy_node_whose_heartbeat_dies_becomes_offline(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        monitor = stage.monitor()
        await lose_tunnel(stage, node, epoch)
        await monitor.tick()
        assert await status(stage, node) == ("unhealthy", "tunnel-gone", 1)
        await stage.silence(node)
        await monitor.tick()
        assert await status(stage, node) == ("offline", "heartbeat-dead", 0), "unhealthy for ever"
        assert await actions(stage) == ["models-deleted", "demoted", "demoted"]

    play(story)


@pytest.mark.holds("B-149")
def test_a_heartbeat_that_returns_is_one_recovery_and_a_tunnel_that_returns_another(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        monitor = stage.monitor()
        await lose_tunnel(stage, node, epoch)
        await stage.silence(node)
        await monitor.tick()
        await stage.roster().heartbeat(node, stage.heartbeat("babbler-0"))
        await monitor.tick()
        assert (await status(stage, node))[:2] == ("unhealthy", "tunnel-gone")
        await stage.registry("a").claim(node, seen_epoch=epoch, boot_id=BOOT)
        await monitor.tick()
        assert (await status(stage, node))[:2] == ("healthy", "")

    play(story)


@pytest.mark.holds("B-148")
def test_only_the_holder_of_the_lease_judges_and_the_next_one_follows_when_it_expires(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        first, second = stage.monitor("a"), stage.monitor("b")
        assert await first.tick() == []
        await lose_tunnel(stage, node, epoch)
        assert await second.tick() == [], "two monitors at once"
        await stage.age_lease(LEASE_NAME, stage.timings.health_lease_s)
        assert len(await second.tick()) == 1
        assert [reap.by for reap in await list_reaps(stage.database)] == ["b"]

    play(story)


@pytest.mark.holds("B-148")
def test_a_monitor_that_lost_its_lease_in_the_middle_of_a_tick_writes_nothing(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        monitor = stage.monitor("a")
        await monitor.tick()
        await lose_tunnel(stage, node, epoch)
        grant = await monitor._hold()
        assert grant is not None
        await stage.age_lease(LEASE_NAME, stage.timings.health_lease_s)
        assert await Leases(stage.database).acquire(LEASE_NAME, "b", stage.timings.health_lease_s) is not None

        async def still_believes() -> object:
            return grant

        monitor._hold = still_believes  # type: ignore[assignment,method-assign]  # the pause between lease and write
        assert await monitor.tick() == [], "a superseded monitor demoted a node"
        assert await status(stage, node) == ("healthy", "", 1)
        assert await actions(stage) == []

    play(story)


NEWS = {
    "heartbeat": "UPDATE nodes SET last_heartbeat = clock_timestamp()",
    "claim": "UPDATE connections SET owner = 'a', epoch = epoch + 1, disconnected_at = NULL",
}


@pytest.mark.parametrize("news", sorted(NEWS))
def test_a_fact_that_changed_since_it_was_read_stops_the_write(play: Play, news: str) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        await lose_tunnel(stage, node, epoch)
        await stage.silence(node)

        def meanwhile(verdicts: Sequence[Verdict]) -> Sequence[Verdict]:
            assert [verdict.judgement.status for verdict in verdicts] == [
                "offline"
            ]  # control: it was read as dead
            with psycopg.connect(stage.url, autocommit=True) as connection:
                assert connection.execute(NEWS[news].encode()).rowcount == 1
            return verdicts

        monitor = HealthMonitor(stage.database, holder="a", timings=stage.timings, restrain=meanwhile)
        assert await monitor.tick() == [], "a verdict outlived the facts it rested on"
        assert await status(stage, node) == ("healthy", "", 1)
        assert await actions(stage) == []

    play(story)


def test_a_brake_can_take_verdicts_away(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        await lose_tunnel(stage, node, epoch)
        braked = HealthMonitor(
            stage.database, holder="a", timings=stage.timings, restrain=lambda _verdicts: []
        )
        assert await braked.tick() == []
        assert (await status(stage, node))[0] == "healthy"

    play(story)


def test_a_presence_that_cannot_be_read_is_no_verdict(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        await lose_tunnel(stage, node, epoch)
        await stage.silence(node)
        other = await stage.another_database("other")
        monitor = HealthMonitor(other, holder="a", timings=stage.timings)
        await other.close()
        with pytest.raises(DatabaseUnavailable):
            await monitor.tick()
        assert await status(stage, node) == ("healthy", "", 1)
        assert await actions(stage) == []

    play(story)


def test_after_an_outage_nobody_is_demoted_before_the_workers_could_speak(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, _ = await connected(stage)
        dead, _ = await connected(stage, "dead")
        now = [0.0]
        monitor = HealthMonitor(stage.database, holder="a", timings=stage.timings, clock=lambda: now[0])
        await monitor.tick()
        for each in (node, dead):  # nobody could write for as long as this monitor could not read
            await stage.silence(each)
        now[0] += stage.timings.heartbeat_stale_s
        assert await monitor.tick() == [], "a database outage was taken for the death of every worker"
        await stage.roster().heartbeat(node, stage.heartbeat("babbler-0"))
        for _ in range(8):
            now[0] += stage.timings.heartbeat_stale_s / 8
            changes = await monitor.tick()
        assert [change.id for change in changes] == [dead]  # control: it does judge again

    play(story)


def test_standing_down_lets_the_next_replica_judge_at_once(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        first = stage.monitor("a")
        await first.tick()
        await lose_tunnel(stage, node, epoch)
        await first.stand_down()
        assert len(await stage.monitor("b").tick()) == 1

    play(story)


def test_a_running_monitor_says_an_outage_once_and_goes_on(
    play: Play, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await connected(stage)
        await lose_tunnel(stage, node, epoch)
        monitor = stage.monitor()
        real, judged, ticks = monitor.tick, asyncio.Event(), itertools.count()

        async def tick() -> list[Change]:
            if next(ticks) < 2:
                raise DatabaseUnavailable("database gone fishing")
            changes = await real()
            judged.set()
            return changes

        monkeypatch.setattr(monitor, "tick", tick)
        running = asyncio.create_task(monitor.run())
        try:
            async with asyncio.timeout(stage.timings.start_s):
                await judged.wait()
        finally:
            running.cancel()
        assert (await status(stage, node))[0] == "unhealthy"

    play(story)
    assert caplog.text.count("gone fishing") == 1
    assert "reads again" in caplog.text
