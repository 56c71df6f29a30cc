"""Heartbeats, views, candidates: what the roster says about nodes, all of it by name."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from inference_fleet.roster import Heartbeat, ModelReport
from inference_fleet.roster.frontend import BootSuperseded, Candidate, NodeUnknown
from inference_fleet.store import DatabaseUnavailable, list_reaps

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage

    from inference_fleet.roster.frontend import NodeView

BOOT = "boot-0001"
KEYS = {
    "id", "name", "node_type", "status", "status_reason", "presence", "owner", "epoch", "boot_id", "models", "address",
    "http_address", "last_heartbeat", "labels", "model_count", "in_flight_count",
}  # fmt: skip


def reported(*models: str, boot: str = BOOT, state: str = "ready", port: int = 20051) -> Heartbeat:
    return Heartbeat(
        boot_id=boot,
        models=[ModelReport(name=name, port=port, process_key=f"{name}#1", state=state) for name in models],
    )


async def seen(stage: Stage, node: str) -> NodeView:
    view = await stage.roster().node(node)
    assert view is not None
    return view


def test_a_view_has_every_key_of_the_contract_and_no_address(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a", address="10.0.0.1:80")
        node = await stage.node("worker", "babbler-0")
        claim = await a.claim(node, seen_epoch=0, boot_id=BOOT)
        view = await seen(stage, node)
        assert asdict(view).keys() >= KEYS
        assert (view.address, view.http_address) == ("", ""), "a worker seems to have somewhere to be dialled"
        assert (view.name, view.node_type, view.status, view.presence) == (
            "worker",
            "backend",
            "healthy",
            "connected",
        )
        assert (view.owner, view.epoch, view.boot_id, view.model_count) == ("a", claim.epoch, BOOT, 1)
        assert view.models == [
            {"name": "babbler-0", "port": 20051, "process_key": f"babbler-0#{BOOT}", "state": "ready"}
        ]
        assert await stage.roster().nodes() == [view]

    play(story)


def test_the_owner_shown_is_a_live_one(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        node = await stage.node("worker")
        await a.claim(node, seen_epoch=0, boot_id=BOOT)
        await stage.kill("a")
        view = await seen(stage, node)
        assert (view.owner, view.presence) == ("", "reconnecting")

    play(story)


def test_a_heartbeat_replaces_what_is_known_of_the_models(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node("worker", "one", "two")
        await stage.roster().heartbeat(node, reported("two", "three", state="starting", port=20060))
        view = await seen(stage, node)
        assert [(model["name"], model["state"], model["port"]) for model in view.models] == [
            ("three", "starting", 20060),
            ("two", "starting", 20060),
        ]
        await stage.roster().heartbeat(node, reported())
        assert (await seen(stage, node)).models == []

    play(story)


@pytest.mark.holds("B-146")
def test_a_heartbeat_is_what_keeps_a_node_fresh(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node("worker")
        await stage.silence(node)
        explained = await stage.roster().explain(node)
        assert explained.facts["heartbeat_fresh"] is False
        await stage.roster().heartbeat(node, reported())
        explained = await stage.roster().explain(node)
        assert explained.facts["heartbeat_fresh"] is True

    play(story)


def test_a_heartbeat_of_nobody_and_of_a_replaced_boot_are_told_apart(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node("worker", "one")
        with pytest.raises(NodeUnknown, match="node-nobody"):
            await stage.roster().heartbeat("node-nobody", reported())
        with pytest.raises(BootSuperseded, match=f"boot boot-0000 was superseded by boot {BOOT}"):
            await stage.roster().heartbeat(node, reported(boot="boot-0000"))
        assert (await seen(stage, node)).model_count == 1, (
            "a replaced process changed the rows of its successor"
        )

    play(story)


def test_the_boot_of_the_newest_claim_speaks_for_its_node(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        node = await stage.node("worker", "one")
        first = await a.claim(node, seen_epoch=0, boot_id=BOOT)
        await stage.roster().register(stage.registration(boot="boot-twin"))
        with pytest.raises(BootSuperseded, match=f"boot {BOOT} was superseded by boot boot-twin"):
            await stage.roster().heartbeat(node, reported(boot=BOOT))
        second = await a.claim(node, seen_epoch=first.epoch, boot_id="boot-twin")
        await a.release(node, second.epoch)
        await a.claim(node, seen_epoch=first.epoch, boot_id=BOOT)
        heard = (await seen(stage, node)).boot_id
        assert heard == BOOT, f"boot {heard} speaks for a node that boot {BOOT} holds"
        await stage.roster().heartbeat(node, reported(boot=BOOT))
        with pytest.raises(BootSuperseded, match=f"boot boot-twin was superseded by boot {BOOT}"):
            await stage.roster().heartbeat(node, reported(boot="boot-twin"))

    play(story)


def test_a_boot_conflict_names_both_boots_for_as_long_as_it_is_recent(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        node = await stage.node("worker")
        await a.claim(node, seen_epoch=0, boot_id="boot-0001")
        assert (await seen(stage, node)).status_reason == ""
        await a.claim(node, seen_epoch=0, boot_id="boot-0002")
        reason = (await seen(stage, node)).status_reason
        assert "boot-conflict: boot-0002 took the tunnel from boot-0001" in reason
        await stage.age_boot_change(node, stage.timings.reconnect_grace_s)
        assert (await seen(stage, node)).status_reason == ""

    play(story)


def test_candidates_are_ready_models_of_healthy_nodes_that_are_not_gone(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        roster = stage.roster()
        node = await stage.node("worker", "babbler-0")
        offer = Candidate(
            node_id=node, node_name="worker", model="babbler-0", port=20051, process_key=f"babbler-0#{BOOT}"
        )
        claim = await a.claim(node, seen_epoch=0, boot_id=BOOT)
        assert await roster.candidates("babbler-0") == [offer]
        assert await roster.model_names() == ["babbler-0"]
        assert await roster.candidates("babbler-1") == []
        await a.release(node, claim.epoch)
        assert await roster.candidates("babbler-0") == [offer], "a worker moving house lost its place"
        assert (await seen(stage, node)).placeable, "the view knows another rule than placement"
        await stage.gone(node)
        assert await roster.candidates("babbler-0") == [], "work is placed on a worker nobody reaches"
        assert not (await seen(stage, node)).placeable, "the view places on a worker nobody reaches"
        await a.claim(node, seen_epoch=0, boot_id=BOOT)
        assert await roster.candidates("babbler-0") == [offer]
        await roster.set_draining(node, draining=True)
        assert await roster.candidates("babbler-0") == []
        assert not (await seen(stage, node)).placeable
        await roster.set_draining(node, draining=False)
        await roster.heartbeat(node, reported("babbler-0", state="starting"))
        assert await roster.candidates("babbler-0") == []
        assert await roster.model_names() == []

    play(story)


def test_an_agent_is_never_a_candidate(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node("worker", "babbler-0")
        assert await stage.database.change("UPDATE nodes SET node_type = 'agent'") == 1
        assert await stage.roster().candidates("babbler-0") == []
        assert not (await seen(stage, node)).placeable, "the view places on an agent"

    play(story)


def test_draining_is_a_status_and_ends(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node("worker")
        await stage.roster().set_draining(node, draining=True)
        assert (await seen(stage, node)).status == "draining"
        await stage.roster().set_draining(node, draining=False)
        assert (await seen(stage, node)).status == "healthy"
        with pytest.raises(NodeUnknown):
            await stage.roster().set_draining("node-nobody", draining=True)

    play(story)


def test_deregistering_takes_the_models_along_and_is_journaled(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node("worker", "babbler-0")
        await stage.roster().deregister(node)
        assert await stage.roster().nodes() == []
        assert await stage.value("SELECT count(*) FROM node_models") == 0
        assert await stage.roster().credential_versions([node]) == {}, "a live tunnel would not be cut"
        (reap,) = await list_reaps(stage.database)
        assert (reap.action, reap.evidence) == ("deregistered", {"models": ["babbler-0"]})
        with pytest.raises(NodeUnknown):
            await stage.roster().deregister(node)

    play(story)


def test_explain_gives_facts_and_journal_and_no_secret(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        node = await stage.node("worker", "babbler-0")
        claim = await a.claim(node, seen_epoch=0, boot_id=BOOT)
        await a.release(node, claim.epoch)
        await stage.gone(node)
        await stage.monitor().tick()
        explained = await stage.roster().explain(node)
        assert explained.node is not None
        assert explained.node.status_reason == "tunnel-gone"
        assert explained.facts["departed_past_grace"] is True
        assert explained.facts["judged_status"] == "unhealthy"
        assert [reap.action for reap in explained.reaps] == ["demoted"]
        assert "credential_sha256" not in explained.facts
        await stage.roster().deregister(node)
        after = await stage.roster().explain(node)
        assert after.node is None
        assert [reap.action for reap in after.reaps] == ["deregistered", "demoted"]

    play(story)


def test_an_outage_is_an_error_and_never_an_empty_roster(play: Play) -> None:
    async def story(stage: Stage) -> None:
        await stage.node("worker")
        await stage.database.change("ALTER TABLE nodes RENAME TO gone_fishing")
        await stage.database.close()
        with pytest.raises(DatabaseUnavailable):
            await stage.roster().nodes()

    play(story)


def test_the_wire_side_of_the_roster_loads_no_database() -> None:
    import subprocess  # noqa: PLC0415  # a fresh interpreter is the only honest witness
    import sys  # noqa: PLC0415

    code = (
        "import sys, inference_fleet.roster.wire, inference_fleet.roster;"
        "sys.exit(any(name.startswith(('psycopg', 'inference_fleet.store')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
