"""Replicas: rows, heartbeats, what a dead one leaves behind, and when a departed row is forgotten."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from inference_fleet.cluster import InstanceIdTaken, Presence

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage

WORKER = "worker-boot"


@pytest.mark.holds("B-1")
def test_a_replica_is_live_while_its_heartbeat_is_inside_the_window(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        assert [instance.id for instance in await a.live()] == ["a", "b"]
        await stage.kill("b")
        assert [instance.id for instance in await a.live()] == ["a"]
        assert [instance.id for instance in await a.instances()] == ["a", "b"]  # control: the row is there
        assert await b.heartbeat()
        assert [instance.id for instance in await a.live()] == ["a", "b"]

    play(story)


def test_stamps_are_the_databases_whatever_this_process_thinks_the_time_is(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.replica("a")
        off = await stage.value(
            "SELECT abs(extract(epoch FROM last_seen - clock_timestamp()))::float8 FROM instances WHERE id = 'a'"
        )
        assert off < stage.timings.instance_liveness_s

    play(story)


@pytest.mark.holds("B-4")
def test_a_replica_without_an_address_has_a_row_and_owns_but_cannot_be_dialled(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a", address=""), await stage.replica("b")
        await a.claim("n1", seen_epoch=0, boot_id=WORKER)
        owner = await b.owner("n1")
        assert owner is not None
        assert (owner.instance_id, owner.address) == ("a", "")
        assert await b.presence("n1") is Presence.CONNECTED
        assert (await b.sweep()).cleared == ()

    play(story)


def test_a_restart_under_the_same_id_holds_nothing_of_what_the_dead_process_held(play: Play) -> None:
    async def story(stage: Stage) -> None:
        dead, other = await stage.replica("a", boot="p1"), await stage.replica("b")
        claim = await dead.claim("n1", seen_epoch=0, boot_id=WORKER)
        await other.claim("n2", seen_epoch=0, boot_id=WORKER)
        await stage.replica("a", boot="p2")
        row = await other.owner_row("n1")
        assert row is not None
        assert (row.owner, row.epoch) == ("", claim.epoch), (
            "a restarted replica seems to hold what it does not"
        )
        assert await other.presence("n1") is Presence.RECONNECTING
        assert await other.presence("n2") is Presence.CONNECTED  # control: only its own

    play(story)


def test_registering_again_in_the_same_process_keeps_what_it_holds(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        await a.claim("n1", seen_epoch=0, boot_id=WORKER)
        (before,) = await a.instances()
        await a.register("10.0.0.9:80")
        (after,) = await a.instances()
        assert await a.presence("n1") is Presence.CONNECTED
        assert (after.address, after.started_at) == ("10.0.0.9:80", before.started_at)

    play(story)


def test_a_swept_replica_writes_its_row_anew_and_one_that_was_replaced_is_told(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a", boot="p1"), await stage.replica("b")
        await stage.kill("a")
        assert (await b.sweep()).deleted == ("a",)
        assert not await a.heartbeat(), "the row was gone"
        assert [instance.id for instance in await b.live()] == ["a", "b"]
        await stage.replica("a", boot="p2")
        with pytest.raises(InstanceIdTaken, match="BLACKSTART_INSTANCE_ID"):
            await a.heartbeat()

    play(story)


def test_leaving_departs_what_is_held_and_only_by_the_process_that_holds_it(play: Play) -> None:
    async def story(stage: Stage) -> None:
        old, b = await stage.replica("a", boot="p1"), await stage.replica("b")
        new = await stage.replica("a", boot="p2")
        await new.claim("n1", seen_epoch=0, boot_id=WORKER)
        await old.unregister()
        assert await b.presence("n1") is Presence.CONNECTED, (
            "a late goodbye of a dead process cleared its successor"
        )
        await new.unregister()
        assert await b.presence("n1") is Presence.RECONNECTING
        assert [instance.id for instance in await b.instances()] == ["b"]

    play(story)


@pytest.mark.holds("B-8", "B-11")
def test_a_sweep_records_departures_and_deletes_only_instances(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        epochs = [(await a.claim(node, seen_epoch=0, boot_id=WORKER)).epoch for node in ("n1", "n2")]
        await b.claim("n3", seen_epoch=0, boot_id=WORKER)
        assert (await b.sweep()).cleared == ()  # control: nobody is dead yet
        await stage.kill("a")
        swept = await b.sweep()
        assert sorted(swept.cleared) == [("n1", "a"), ("n2", "a")]
        assert swept.deleted == ("a",)
        for node, epoch in zip(("n1", "n2"), epochs, strict=True):
            row = await b.owner_row(node)
            assert row is not None, "a sweep forgot a worker"
            assert (row.owner, row.epoch) == ("", epoch)
            assert await b.presence(node) is Presence.RECONNECTING
        assert await b.presence("n3") is Presence.CONNECTED

    play(story)


@pytest.mark.holds("B-12")
def test_a_departed_row_is_never_stamped_again_by_a_sweep(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        for node in ("n1", "n2"):
            claim = await a.claim(node, seen_epoch=0, boot_id=WORKER)
            if node == "n1":
                await a.release(node, claim.epoch)
        await stage.gone("n1")
        await stage.kill("a")
        swept = await b.sweep()
        assert swept.cleared == (("n2", "a"),)  # control: the sweep did run
        assert await b.presence("n1") is Presence.GONE, "a sweep made a long-gone worker look freshly gone"

    play(story)


@pytest.mark.holds("B-12")
def test_the_sweep_names_heldness_owner_and_epoch_in_the_write_itself() -> None:
    from inference_fleet.cluster import instances  # noqa: PLC0415  # beside its one reader

    write = instances.DEPART_DEAD.split("UPDATE", 1)[1]
    for condition in ("c.owner = dead.owner", "c.epoch = dead.epoch", "c.owner <> ''"):
        assert condition in write, f"the sweep's write does not ask {condition}"


@pytest.mark.holds("B-13", "B-14")
def test_a_purge_forgets_what_departed_longer_ago_than_the_retention(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        for node in ("old", "young", "held"):
            claim = await a.claim(node, seen_epoch=0, boot_id=WORKER)
            if node != "held":
                await a.release(node, claim.epoch)
        await stage.age_departure("old", stage.timings.departed_retention_s)
        await stage.age_departure("young", stage.timings.departed_retention_s * 0.9)
        stamped = "UPDATE connections SET disconnected_at = clock_timestamp() WHERE node_id = 'held'"
        assert await stage.database.change(stamped) == 1
        await stage.age_departure("held", stage.timings.departed_retention_s)
        assert await a.purge() == ("old",), "a purge takes departed rows only, whatever stamp a held one has"
        assert await a.presence("old") is Presence.UNKNOWN
        assert await a.presence("young") is Presence.GONE
        assert await a.presence("held") is Presence.CONNECTED

    play(story)


def test_a_sweep_and_a_purge_never_wait_for_whoever_is_writing_a_row(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        for node in ("n1", "n2", "old-1", "old-2"):
            claim = await a.claim(node, seen_epoch=0, boot_id=WORKER)
            if node.startswith("old"):
                await a.release(node, claim.epoch)
                await stage.age_departure(node, stage.timings.departed_retention_s)
        await stage.kill("a")
        async with stage.database.transaction() as writer:
            await writer.execute("SELECT 1 FROM connections WHERE node_id IN ('n1', 'old-1') FOR UPDATE")
            async with asyncio.timeout(stage.timings.database_statement_s / 2):
                swept, purged = await b.sweep(), await b.purge()
        assert swept.cleared == (("n2", "a"),), "a row under somebody's hand was swept"
        assert purged == ("old-2",)
        assert (await b.sweep()).cleared == (("n1", "a"),)  # control: the next sweep finds it
        assert await b.purge() == ("old-1",)

    play(story)
