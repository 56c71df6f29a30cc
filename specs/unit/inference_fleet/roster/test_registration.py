"""A name, a credential, and who may have it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from inference_fleet.roster import Registration
from inference_fleet.roster.frontend import NameTaken
from inference_fleet.roster.frontend.registration import (
    Holder,
    RegistrationVerdict,
    judge_registration,
    retry_after_s,
)
from inference_fleet.store import list_reaps

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage

ALIVE = Holder(credential_sha256="a" * 64, connected=True, heartbeat_fresh=True)
DEAD = replace(ALIVE, connected=False, heartbeat_fresh=False)


def registration(name: str, *, credential: str = "a", boot: str = "boot-0001") -> Registration:
    return Registration(name=name, node_type="backend", boot_id=boot, credential_sha256=credential * 64)


@pytest.mark.parametrize(
    ("holder", "credential", "expected"),
    [
        (ALIVE, "a" * 64, RegistrationVerdict.SAME),
        (DEAD, "a" * 64, RegistrationVerdict.SAME),
        (ALIVE, "b" * 64, RegistrationVerdict.TAKEN),
        (replace(DEAD, connected=True), "b" * 64, RegistrationVerdict.TAKEN),
        (replace(DEAD, heartbeat_fresh=True), "b" * 64, RegistrationVerdict.TAKEN),
        (DEAD, "b" * 64, RegistrationVerdict.REPLACE),
        (replace(ALIVE, credential_sha256=""), "", RegistrationVerdict.TAKEN),
    ],
)
def test_the_table(holder: Holder, credential: str, expected: RegistrationVerdict) -> None:
    assert judge_registration(holder, credential) is expected


@pytest.mark.parametrize(
    ("age", "connected", "expected"),
    [(10.0, False, 50.0), (70.0, True, 15.0), (10.0, True, 50.0), (None, True, 15.0)],
)
def test_one_is_told_to_return_when_the_holder_would_be_stale(
    age: float | None, *, connected: bool, expected: float
) -> None:
    assert retry_after_s(heartbeat_age_s=age, stale_s=60, connected=connected, liveness_s=15) == expected


@pytest.mark.holds("B-154")
def test_a_name_keeps_its_id_whichever_replica_hears_it(play: Play) -> None:
    async def story(stage: Stage) -> None:
        first = await stage.roster("a").register(registration("worker"))
        again = await stage.roster("b").register(registration("worker", boot="boot-0002"))
        assert again.id == first.id
        assert again.created_at == first.created_at
        assert (await stage.roster().register(registration("other"))).id != first.id  # control

    play(story)


@pytest.mark.holds("B-156")
def test_registering_again_forgets_the_models_of_the_last_boot(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node("worker", "babbler-0")
        view = await stage.roster().node(node)
        assert view is not None
        assert view.model_count == 1  # control
        again = await stage.roster().register(stage.registration(boot="boot-0002"))
        view = await stage.roster().node(again.id)
        assert view is not None
        assert (view.model_count, view.boot_id) == (0, "boot-0002"), (
            "rows of a dead process are still offered"
        )
        assert await stage.roster().candidates("babbler-0") == []

    play(story)


def test_another_credential_waits_while_the_holder_lives_and_replaces_it_once_it_is_dead(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        roster = stage.roster()
        node = (await roster.register(registration("worker"))).id
        claim = await a.claim(node, seen_epoch=0, boot_id="boot-0001")
        thief = registration("worker", credential="b", boot="boot-0002")

        with pytest.raises(NameTaken, match=f"taken by node {node}") as caught:
            await roster.register(thief)  # connected and fresh
        assert 0 < caught.value.retry_after_s <= stage.timings.heartbeat_stale_s
        await a.release(node, claim.epoch)
        with pytest.raises(NameTaken):
            await roster.register(thief)  # fresh alone
        await stage.silence(node)
        claim = await a.claim(node, seen_epoch=0, boot_id="boot-0001")
        with pytest.raises(NameTaken) as caught:
            await roster.register(thief)  # connected alone
        assert caught.value.retry_after_s == stage.timings.instance_liveness_s
        assert await roster.credential_versions([node]) == {node: 1}
        assert await list_reaps(stage.database) == []

        await a.release(node, claim.epoch)
        assert (await roster.register(thief)).id == node
        assert await roster.credential_versions([node]) == {node: 2}, "the old credential was not revoked"
        (reap,) = await list_reaps(stage.database)
        assert (reap.action, reap.node_id, reap.by, reap.epoch) == (
            "credential-replaced",
            node,
            "a",
            claim.epoch,
        )
        assert reap.evidence["presence"] == "reconnecting"
        assert reap.evidence["boot_before"] == "boot-0001"

    play(story)


def test_eight_workers_that_register_at_once_become_eight_nodes(play: Play) -> None:
    async def story(stage: Stage) -> None:
        rosters = [stage.roster("a"), stage.roster("b")]
        names = [f"worker-{number}" for number in range(8)]
        registered = await asyncio.gather(
            *(rosters[number % 2].register(registration(name)) for number, name in enumerate(names))
        )
        assert len({each.id for each in registered}) == 8
        assert [view.name for view in await stage.roster().nodes()] == names

    play(story)


def test_one_worker_that_registers_eight_times_at_once_is_one_node(play: Play) -> None:
    async def story(stage: Stage) -> None:
        registered = await asyncio.gather(
            *(
                stage.roster().register(registration("worker", boot=f"boot-000{number}"))
                for number in range(8)
            )
        )
        assert len({each.id for each in registered}) == 1
        (view,) = await stage.roster().nodes()
        assert view.boot_id.startswith("boot-000")

    play(story)


def test_two_strangers_that_want_one_name_at_once_get_one_node_and_one_refusal(play: Play) -> None:
    async def story(stage: Stage) -> None:
        results = await asyncio.gather(
            *(stage.roster().register(registration("worker", credential=credential)) for credential in "ab"),
            return_exceptions=True,
        )
        assert sorted(type(result).__name__ for result in results) == ["NameTaken", "Registered"]

    play(story)


@pytest.mark.parametrize(("auto", "status"), [(True, "healthy"), (False, "pending")])
def test_a_node_waits_for_approval_where_it_is_asked_for(play: Play, *, auto: bool, status: str) -> None:
    async def story(stage: Stage) -> None:
        roster = stage.roster(auto_approve=auto)
        registered = await roster.register(registration("worker"))
        assert registered.status == status
        again = await roster.register(registration("worker"))
        assert again.status == status
        await roster.approve(registered.id)
        view = await roster.node(registered.id)
        assert view is not None
        assert view.status == "healthy"

    play(story)


@pytest.mark.holds("B-140")
def test_registering_again_promotes_nobody_whose_tunnel_is_gone(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        roster = stage.roster()
        node = (await roster.register(registration("worker"))).id
        claim = await a.claim(node, seen_epoch=0, boot_id="boot-0001")
        await a.release(node, claim.epoch)
        await stage.gone(node)
        assert [change.after for change in await stage.monitor().tick()] == ["unhealthy"]
        assert (await roster.register(registration("worker"))).status == "unhealthy"
        await a.claim(node, seen_epoch=0, boot_id="boot-0001")
        await roster.tunnel_arrived(node)
        view = await roster.node(node)
        assert view is not None
        assert (view.status, view.status_reason) == ("healthy", "")

    play(story)
