"""Work for one replica at a time: the row says who, and its epoch says whose writes still count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from inference_fleet.store import LEASE_IS_HELD, LeaseGrant, Leases, statement

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage

TTL = 30.0
_FENCED = statement(
    "WITH fence AS MATERIALIZED ($fence) UPDATE nodes SET status_reason = %(by)s FROM fence WHERE name = 'worker'",
    fence=LEASE_IS_HELD,
)


async def write_under(stage: Stage, grant: LeaseGrant) -> int:
    return await stage.database.change(_FENCED, {**grant.parameters, "by": grant.holder})


def test_one_holder_at_a_time_until_it_expires(play: Play) -> None:
    async def story(stage: Stage) -> None:
        leases = Leases(stage.database)
        first = await leases.acquire("health", "a", TTL)
        assert first == LeaseGrant("health", "a", 1)
        assert await leases.acquire("health", "b", TTL) is None
        assert await leases.acquire("health", "a", TTL) is None, (
            "a second grant to the same holder would unfence the first"
        )
        assert await leases.acquire("other", "b", TTL) is not None  # control: another name is free
        await stage.age_lease("health", TTL)
        assert await leases.acquire("health", "b", TTL) == LeaseGrant("health", "b", 2)

    play(story)


def test_a_renewal_extends_and_a_lost_lease_cannot_be_renewed(play: Play) -> None:
    async def story(stage: Stage) -> None:
        leases = Leases(stage.database)
        grant = await leases.acquire("health", "a", TTL)
        assert grant is not None
        await stage.age_lease("health", TTL / 2)
        assert await leases.renew(grant, TTL)
        await stage.age_lease("health", TTL / 2)
        assert await leases.acquire("health", "b", TTL) is None  # control: it was extended
        await stage.age_lease("health", TTL)
        assert not await leases.renew(grant, TTL), "an expired lease was renewed"

    play(story)


@pytest.mark.holds("B-148")
def test_a_write_under_a_lease_that_was_lost_changes_nothing(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.node("worker")
        leases = Leases(stage.database)
        first = await leases.acquire("health", "a", TTL)
        assert first is not None
        assert await write_under(stage, first) == 1  # control: while it holds, the write lands
        await stage.age_lease("health", TTL)
        assert await write_under(stage, first) == 0, "an expired holder wrote"
        second = await leases.acquire("health", "b", TTL)
        assert second is not None
        assert await write_under(stage, first) == 0, "a superseded holder wrote"
        again = LeaseGrant("health", "b", first.epoch)
        assert await write_under(stage, again) == 0, "an older epoch of the holder wrote"
        assert await write_under(stage, second) == 1

    play(story)


def test_a_released_lease_is_free_at_once_and_its_epoch_goes_on(play: Play) -> None:
    async def story(stage: Stage) -> None:
        leases = Leases(stage.database)
        first = await leases.acquire("health", "a", TTL)
        assert first is not None
        assert await leases.release(first)
        assert not await leases.release(first)
        assert await leases.acquire("health", "b", TTL) == LeaseGrant("health", "b", 2)

    play(story)


@pytest.mark.parametrize(("name", "holder"), [("", "a"), ("health", "")])
def test_nobody_can_hold_nothing(play: Play, name: str, holder: str) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(ValueError, match="neither may be empty"):
            await Leases(stage.database).acquire(name, holder, TTL)

    play(story)
