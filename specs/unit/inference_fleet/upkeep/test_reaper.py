"""A worker's own answer deletes the one row it was about; nothing else deletes anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from inference_fleet.store import list_reaps
from inference_fleet.tunnel.refusals import REFUSALS

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage

BOOT = "boot-0001"
KEY = f"one#{BOOT}"
CODES = [*(rule.code for rule in REFUSALS.values()), "a-code-of-a-later-release", ""]


async def serving(stage: Stage) -> tuple[str, int]:
    a = await stage.replica("a")
    node = await stage.node("worker", "one", "two")
    return node, (await a.claim(node, seen_epoch=0, boot_id=BOOT)).epoch


async def models(stage: Stage, node: str) -> list[str]:
    view = await stage.roster().node(node)
    assert view is not None
    return [model["name"] for model in view.models]


@pytest.mark.parametrize("code", CODES)
def test_only_an_answer_that_is_evidence_deletes_and_only_its_row(play: Play, code: str) -> None:
    evidence = code in {"unavailable", "invalid", "tag-unknown"}

    async def story(stage: Stage) -> None:
        node, epoch = await serving(stage)
        deleted = await stage.reaper().worker_answered(
            node_id=node, model="one", process_key=KEY, refusal_code=code, epoch=epoch
        )
        assert deleted is evidence, f"{code!r} deleted a row"
        assert await models(stage, node) == (["two"] if evidence else ["one", "two"])
        reaps = await list_reaps(stage.database)
        assert len(reaps) == int(evidence)
        if evidence:
            (reap,) = reaps
            assert (reap.action, reap.node_id, reap.by, reap.epoch) == ("model-deleted", node, "a", epoch)
            assert reap.reason == f"answer:{code}"
            assert reap.evidence == {"model": "one", "process_key": KEY, "port": 20051, "refusal": code}

    play(story)


@pytest.mark.parametrize(
    ("model", "key", "off"), [("one", "one#another", 0), ("one", "", 0), ("two", KEY, 0), ("one", KEY, 1)]
)
def test_an_answer_about_another_process_or_over_another_epoch_deletes_nothing(
    play: Play, model: str, key: str, off: int
) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await serving(stage)
        assert not await stage.reaper().worker_answered(
            node_id=node, model=model, process_key=key, refusal_code="unavailable", epoch=epoch - off
        )
        assert await models(stage, node) == ["one", "two"]
        assert await list_reaps(stage.database) == []

    play(story)


def test_a_second_identical_answer_finds_nothing_more_to_delete(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node, epoch = await serving(stage)
        reaper = stage.reaper()
        answers = [
            await reaper.worker_answered(
                node_id=node, model="one", process_key=KEY, refusal_code="unavailable", epoch=epoch
            )
            for _ in range(2)
        ]
        assert answers == [True, False]
        assert len(await list_reaps(stage.database)) == 1

    play(story)
