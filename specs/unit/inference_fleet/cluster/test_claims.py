"""Epochs that never go back, claims that queue at their row, and two boots that want one node."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from inference_fleet.cluster import EPOCH_LEAP_MAX, BootConflict, EpochLeap
from inference_fleet.cluster.claims import ClaimVerdict, Standing, judge_claim, leaps, next_epoch
from inference_fleet.cluster.presence import Presence

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage

    from inference_fleet.cluster import Registry

W1, W2 = "worker-boot-1", "worker-boot-2"
STANDING = Standing(owner="a", epoch=4, boot_id=W1, held=True, owner_live=True, damped_for_s=0.0, upcoming=9)


@pytest.mark.parametrize(
    ("standing", "boot", "expected"),
    [
        (STANDING, W1, ClaimVerdict.TAKE),
        (STANDING, W2, ClaimVerdict.CONFLICT),
        (replace(STANDING, damped_for_s=0.1), W2, ClaimVerdict.REFUSE),
        (replace(STANDING, damped_for_s=0.1), W1, ClaimVerdict.TAKE),
        (replace(STANDING, owner_live=False, damped_for_s=0.1), W2, ClaimVerdict.TAKE),
        (replace(STANDING, held=False, owner="", owner_live=False, damped_for_s=0.1), W2, ClaimVerdict.TAKE),
        (replace(STANDING, boot_id="", damped_for_s=0.1), W2, ClaimVerdict.TAKE),
    ],
)
def test_only_another_boot_over_a_live_one_is_a_conflict(
    standing: Standing, boot: str, expected: ClaimVerdict
) -> None:
    assert judge_claim(standing, boot) is expected


def test_an_epoch_is_above_everything_seen() -> None:
    assert next_epoch(7, floor=3) == 7
    assert next_epoch(7, floor=7) == 8
    assert next_epoch(7, floor=90) == 91


def test_a_leap_is_believed_up_to_its_bound() -> None:
    assert not leaps(EPOCH_LEAP_MAX + 5, latest=5)
    assert leaps(EPOCH_LEAP_MAX + 6, latest=5)


@pytest.mark.holds("B-16")
def test_epochs_come_from_one_sequence_across_nodes_and_replicas(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        epochs = [
            (await registry.claim(node, seen_epoch=0, boot_id=W1)).epoch
            for registry, node in ((a, "n1"), (b, "n2"), (a, "n2"), (b, "n1"))
        ]
        assert epochs == sorted(set(epochs)), f"epochs are not one rising sequence: {epochs}"

    play(story)


def test_a_claim_goes_above_what_the_worker_has_seen_and_takes_the_sequence_along(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        assert (await a.claim("n1", seen_epoch=500, boot_id=W1)).epoch == 501
        assert (await a.claim("n2", seen_epoch=0, boot_id=W1)).epoch == 502, "the sequence stayed behind"

    play(story)


def test_a_row_never_goes_back_when_the_worker_forgot_what_it_saw(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        first = await a.claim("n1", seen_epoch=500, boot_id=W1)
        assert (
            await stage.value("SELECT setval('connection_epochs', 1)") == 1
        )  # a sequence restored from a copy
        second = await a.claim("n1", seen_epoch=0, boot_id=W1)
        assert second.epoch > first.epoch, f"epoch {second.epoch} after {first.epoch}"

    play(story)


def test_a_leap_past_the_bound_is_refused_and_moves_nothing(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        first = await a.claim("n1", seen_epoch=0, boot_id=W1)
        with pytest.raises(EpochLeap, match="node n2 has seen epoch"):
            await a.claim("n2", seen_epoch=first.epoch + EPOCH_LEAP_MAX + 1, boot_id=W1)
        assert await a.owner_row("n2") is None, "a refused claim left a row"
        assert (
            await a.claim("n1", seen_epoch=0, boot_id=W1)
        ).epoch == first.epoch + 1  # control: nothing moved
        assert (
            await a.claim("n2", seen_epoch=first.epoch + EPOCH_LEAP_MAX, boot_id=W1)
        ).epoch > EPOCH_LEAP_MAX

    play(story)


def test_concurrent_claims_on_one_node_queue_and_the_last_epoch_stands(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        claims = await asyncio.gather(
            *(
                registry.claim("n1", seen_epoch=seen, boot_id=W1)
                for registry, seen in ((a, 0), (b, 40), (a, 0), (b, 0), (a, 90), (b, 0))
            )
        )
        epochs = [claim.epoch for claim in claims]
        assert len(set(epochs)) == len(epochs)
        row = await a.owner_row("n1")
        assert row is not None
        assert row.epoch == max(epochs), f"row stands at {row.epoch}, claims got {sorted(epochs)}"
        superseded = sorted(claim.superseded.epoch for claim in claims if claim.superseded)
        assert superseded == sorted(epochs)[:-1], "somebody was superseded twice or never"

    play(story)


def test_leaps_and_draws_at_once_never_give_one_epoch_twice(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        claims = await asyncio.gather(
            *(
                a.claim(f"n{number}", seen_epoch=(number % 3) * 50 + number, boot_id=W1)
                for number in range(24)
            )
        )
        epochs = [claim.epoch for claim in claims]
        assert len(set(epochs)) == len(epochs), f"given twice: {sorted(epochs)}"
        assert (await a.claim("last", seen_epoch=0, boot_id=W1)).epoch > max(epochs)

    play(story)


@pytest.mark.holds("B-6", "B-7")
def test_the_owner_is_the_live_replica_that_claimed_last(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = (
            await stage.replica("a", address="10.0.0.1:80"),
            await stage.replica("b", address="10.0.0.2:80"),
        )
        assert await a.owner("n1") is None
        await a.claim("n1", seen_epoch=0, boot_id=W1)
        claim = await b.claim("n1", seen_epoch=0, boot_id=W1)
        owner = await a.owner("n1")
        assert owner is not None
        assert (owner.instance_id, owner.address, owner.epoch) == ("b", "10.0.0.2:80", claim.epoch)
        await stage.kill("b")
        assert await a.owner("n1") is None, "a dead replica is still named as owner"
        row = await a.owner_row("n1")
        assert row is not None
        assert row.owner == "b"  # control: the bare row still says so

    play(story)


@pytest.mark.holds("B-8", "B-9", "B-16")
def test_a_release_names_owner_and_epoch_and_keeps_the_epoch(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        old = await a.claim("n1", seen_epoch=0, boot_id=W1)
        new = await a.claim("n1", seen_epoch=0, boot_id=W1)
        assert not await a.release("n1", old.epoch), "a superseded epoch was released"
        assert not await b.release("n1", new.epoch), "somebody else's hold was released"
        assert await a.presence("n1") is Presence.CONNECTED
        assert await a.release("n1", new.epoch)
        row = await a.owner_row("n1")
        assert row is not None
        assert (row.owner, row.epoch) == ("", new.epoch)

    play(story)


@pytest.mark.holds("B-9")
def test_a_departed_row_is_never_released_again(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        claim = await a.claim("n1", seen_epoch=0, boot_id=W1)
        assert await a.release("n1", claim.epoch)
        await stage.gone("n1")
        nobody = await stage.replica("nobody")
        nobody.instance_id = ""  # what an unset identity would be
        assert not await nobody.release("n1", claim.epoch), "an empty id matched a departed row"
        await nobody.unregister()
        assert await a.presence("n1") is Presence.GONE, "a long-gone worker looks freshly gone"

    play(story)


@pytest.mark.holds("B-9")
@pytest.mark.parametrize(("instance", "boot"), [("", "p1"), ("a", "")])
def test_a_registry_without_an_identity_cannot_be_made(play: Play, instance: str, boot: str) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(ValueError, match="neither may be empty"):
            stage.registry(instance, boot=boot)

    play(story)


@pytest.mark.parametrize(("node", "boot", "seen"), [("", W1, 0), ("n1", "", 0), ("n1", W1, -1)])
def test_a_claim_without_node_boot_or_sense_is_refused(play: Play, node: str, boot: str, seen: int) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        with pytest.raises(ValueError, match="claim of node"):
            await a.claim(node, seen_epoch=seen, boot_id=boot)

    play(story)


async def conflicts(registry: Registry) -> tuple[int, str, str]:
    row = await registry.owner_row("n1")
    assert row is not None
    return row.conflicts, row.previous_boot_id, row.boot_id


def test_the_same_boot_supersedes_itself_without_a_conflict(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        first = await a.claim("n1", seen_epoch=0, boot_id=W1)
        assert first.superseded is None
        second = await b.claim("n1", seen_epoch=first.epoch, boot_id=W1)
        assert second.superseded is not None
        assert (second.superseded.owner, second.superseded.epoch) == ("a", first.epoch)
        assert second.superseded.same_boot
        assert not second.conflict
        assert await conflicts(a) == (0, "", W1)

    play(story)


def test_another_boot_takes_a_held_node_once_and_is_damped_then(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        await a.claim("n1", seen_epoch=0, boot_id=W1)
        taken = await a.claim("n1", seen_epoch=0, boot_id=W2)
        assert taken.conflict
        assert taken.superseded is not None
        assert not taken.superseded.same_boot
        assert await conflicts(a) == (1, W1, W2)
        with pytest.raises(BootConflict, match=f"held by boot {W2} and asked for by boot {W1}") as caught:
            await a.claim("n1", seen_epoch=0, boot_id=W1)
        assert 0 < caught.value.retry_after_s <= stage.timings.conflict_damping_s
        assert await conflicts(a) == (1, W1, W2), "a refused claim changed the row"
        await a.claim("n1", seen_epoch=0, boot_id=W2)  # control: the boot that holds it is not damped
        await stage.age_boot_change("n1", stage.timings.conflict_damping_s)
        assert (await a.claim("n1", seen_epoch=0, boot_id=W1)).conflict
        assert await conflicts(a) == (2, W2, W1)

    play(story)


def test_a_restarted_worker_whose_tunnel_ended_is_no_conflict(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        first = await a.claim("n1", seen_epoch=0, boot_id=W1)
        await a.release("n1", first.epoch)
        assert not (await a.claim("n1", seen_epoch=0, boot_id=W2)).conflict
        await stage.kill("a")
        assert not (await b.claim("n1", seen_epoch=0, boot_id=W1)).conflict, (
            "a dead owner's boot fights nobody"
        )
        assert (await conflicts(b))[0] == 0

    play(story)
