"""The journal of what was done to nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from inference_fleet.store import ReapAction, list_reaps, record_reap

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage


async def record(stage: Stage, node: str, reason: str) -> None:
    async with stage.database.transaction() as connection:
        await record_reap(
            connection,
            node_id=node,
            node_name=node,
            action=ReapAction.DEMOTED,
            by="a",
            reason=reason,
            evidence={"presence": "gone"},
            epoch=7,
        )


def test_the_newest_come_first_and_a_limit_holds(play: Play) -> None:
    async def story(stage: Stage) -> None:
        for number in range(5):
            await record(stage, "n1", f"r{number}")
        assert [reap.reason for reap in await list_reaps(stage.database, limit=2)] == ["r4", "r3"]

    play(story)


def test_one_node_is_asked_for_by_id(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await record(stage, "n1", "mine")
        await record(stage, "n2", "other")
        (reap,) = await list_reaps(stage.database, node_id="n1")
        assert (reap.node_id, reap.by, reap.action, reap.reason, reap.epoch) == (
            "n1",
            "a",
            "demoted",
            "mine",
            7,
        )
        assert reap.evidence == {"presence": "gone"}

    play(story)


@pytest.mark.parametrize("limit", [0, -1, 1001])
def test_a_limit_outside_its_range_is_refused(play: Play, limit: int) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(ValueError, match="must be from 1 to 1000"):
            await list_reaps(stage.database, limit=limit)

    play(story)
