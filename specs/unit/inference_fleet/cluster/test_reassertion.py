"""Sessions and rows settled with each other: taken back, let go, or lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from inference_fleet.cluster import Presence
from inference_fleet.cluster.reassertion import Assertion, judge_assertion

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage

WORKER = "worker-boot"


@pytest.mark.parametrize(
    ("owner", "epoch", "expected"),
    [
        ("me", 5, Assertion.KEPT),
        ("", 5, Assertion.TAKEN),
        (None, None, Assertion.TAKEN),
        ("other", 4, Assertion.TAKEN),
        ("me", 6, Assertion.LEFT),
        ("other", 6, Assertion.LOST),
        ("", 6, Assertion.LOST),
        ("other", 5, Assertion.LOST),
    ],
)
def test_the_table(owner: str | None, epoch: int | None, expected: Assertion) -> None:
    assert judge_assertion(me="me", epoch=5, row_owner=owner, row_epoch=epoch) is expected


def test_a_row_a_peer_swept_is_taken_back_at_its_own_epoch(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        claim = await a.claim("n1", seen_epoch=0, boot_id=WORKER)
        await stage.kill("a")
        await b.sweep()
        assert not await a.heartbeat()
        settled = await a.reassert({"n1": claim.epoch})
        assert settled.retaken == (("n1", claim.epoch),)
        owner = await b.owner("n1")
        assert owner is not None
        assert (owner.instance_id, owner.epoch) == ("a", claim.epoch)
        row = await b.owner_row("n1")
        assert row is not None
        assert row.disconnected_at is None, "a row taken back still says when it departed"
        assert (await a.reassert({"n1": claim.epoch})).kept == (("n1", claim.epoch),)

    play(story)


def test_a_session_whose_worker_moved_on_is_lost_even_when_nobody_holds_it_now(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        old = await a.claim("n1", seen_epoch=0, boot_id=WORKER)
        new = await b.claim("n1", seen_epoch=old.epoch, boot_id=WORKER)
        assert (await a.reassert({"n1": old.epoch})).lost == (("n1", old.epoch),)
        await b.release("n1", new.epoch)
        settled = await a.reassert({"n1": old.epoch})
        assert settled.lost == (("n1", old.epoch),), "a superseded session took an ownerless row"
        assert settled.retaken == ()

    play(story)


def test_a_newer_claim_of_this_very_replica_is_left_to_its_session_table(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        old = await a.claim("n1", seen_epoch=0, boot_id=WORKER)
        await a.claim("n1", seen_epoch=old.epoch, boot_id=WORKER)
        settled = await a.reassert({"n1": old.epoch})
        assert (settled.kept, settled.retaken, settled.lost) == ((), (), ())

    play(story)


def test_rows_of_an_older_copy_of_the_database_come_back_with_the_sessions(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        claim = await a.claim("n1", seen_epoch=40, boot_id=WORKER)
        await a.claim("n2", seen_epoch=0, boot_id=WORKER)
        assert await stage.database.change("DELETE FROM connections WHERE node_id = 'n1'") == 1
        assert await stage.database.change("UPDATE connections SET epoch = 1, owner = 'ghost'") == 1
        settled = await a.reassert({"n1": claim.epoch, "n2": 42})
        assert settled.retaken == (("n1", claim.epoch), ("n2", 42))
        assert await a.presence("n1") is await a.presence("n2") is Presence.CONNECTED

    play(story)


def test_a_row_without_a_session_departs_once_a_claim_has_had_time_to_settle(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        claim = await a.claim("n1", seen_epoch=0, boot_id=WORKER)
        assert (await a.reassert({})).orphaned == (), "a claim on its way to a session was cleared"
        await stage.age_claim("n1", stage.timings.instance_liveness_s)
        assert (await a.reassert({"n1": claim.epoch})).orphaned == ()  # control: with its session it stays
        assert (await a.reassert({})).orphaned == (("n1", claim.epoch),)
        assert await a.presence("n1") is Presence.RECONNECTING

    play(story)
