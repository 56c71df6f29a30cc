"""Four values, one verdict, held-ness before the stamp, the database's clock."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from inference_fleet.cluster import (
    PRESENCE_COLUMNS,
    Presence,
    PresenceFacts,
    claims,
    instances,
    presence_of,
    reassertion,
    registry,
)
from inference_fleet.settings import Timings

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage

WORKER = "worker-boot"
HELD = PresenceFacts(has_row=True, held=True, owner_live=True, departed_past_grace=False)


@pytest.mark.holds("B-17", "B-20")
@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (replace(HELD, has_row=False, held=False, owner_live=False), Presence.UNKNOWN),
        (HELD, Presence.CONNECTED),
        (replace(HELD, owner_live=False), Presence.RECONNECTING),
        (replace(HELD, owner_live=False, departed_past_grace=True), Presence.RECONNECTING),
        (replace(HELD, departed_past_grace=True), Presence.CONNECTED),
        (replace(HELD, held=False, owner_live=False), Presence.RECONNECTING),
        (replace(HELD, held=False, owner_live=False, departed_past_grace=True), Presence.GONE),
    ],
)
def test_the_rule_asks_heldness_before_any_stamp(facts: PresenceFacts, expected: Presence) -> None:
    assert presence_of(facts) is expected, f"{facts} reads {presence_of(facts)}"


@pytest.mark.holds("B-10", "B-20", "B-21")
def test_the_stamp_speaks_in_the_sql_only_for_a_row_nobody_holds() -> None:
    columns = " ".join(PRESENCE_COLUMNS.split())
    assert "c.owner = '' AND c.disconnected_at <= statement_timestamp()" in columns, (
        "the SQL reads a stamp ungated"
    )
    assert "c.owner <> '' AND i.last_seen > statement_timestamp()" in columns, (
        "the SQL reads liveness ungated"
    )


@pytest.mark.holds("B-2", "B-21")
def test_writers_and_readers_use_the_clock_of_the_database_alone() -> None:
    written = [
        instances.REGISTER,
        instances.HEARTBEAT,
        instances.REVIVE,
        instances.DEPART_PREDECESSOR,
        instances.DEPART_OWN,
        instances.DEPART_DEAD,
        claims.TAKE,
        claims.RELEASE,
        reassertion.RETAKE,
        reassertion.DEPART_ORPHANS,
    ]
    for query in written:
        assert "clock_timestamp()" in query, f"a writer stamps otherwise: {query}"
    read = [
        PRESENCE_COLUMNS,
        instances.LIST,
        instances.DELETE_DEAD,
        instances.PURGE,
        claims.OWNERS,
        claims.LOCK_STANDING,
    ]
    for query in read:
        assert "statement_timestamp()" in query, f"a reader compares otherwise: {query}"
    for query in [*written, *read]:
        assert not re.search(r"%\((?:now|at|stamp|time)\w*\)s", query), f"a stamp comes from outside: {query}"
        assert " now()" not in query, f"transaction time is not the moment: {query}"


def test_presence_is_one_statement() -> None:
    for query in (registry._PRESENCE, registry._PRESENCES):
        assert query.count("SELECT") <= 2
        assert "JOIN instances" in query


@pytest.mark.holds("B-17", "B-18", "B-22", "B-23")
def test_a_worker_goes_from_unknown_to_connected_to_reconnecting_to_gone(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        assert await a.presence("n1") is Presence.UNKNOWN
        claim = await a.claim("n1", seen_epoch=0, boot_id=WORKER)
        assert await a.presence("n1") is Presence.CONNECTED
        assert await a.release("n1", claim.epoch)
        assert await a.presence("n1") is Presence.RECONNECTING
        await stage.age_departure("n1", stage.timings.reconnect_grace_s * 0.8)
        assert await a.presence("n1") is Presence.RECONNECTING, "a worker moving house was called gone"
        await stage.age_departure("n1", stage.timings.reconnect_grace_s * 0.2)
        assert await a.presence("n1") is Presence.GONE
        await a.claim("n1", seen_epoch=claim.epoch, boot_id=WORKER)
        assert await a.presence("n1") is Presence.CONNECTED

    play(story)


@pytest.mark.holds("B-10", "B-19")
def test_held_row_with_dead_owner_and_old_stamp_is_reconnecting(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        await a.claim("n1", seen_epoch=0, boot_id=WORKER)
        # What a writer that does not clear the stamp leaves behind.
        assert await stage.database.change(
            "UPDATE connections SET disconnected_at = clock_timestamp() WHERE node_id = 'n1'"
        )
        await stage.gone("n1")
        assert await b.presence("n1") is Presence.CONNECTED, "an old stamp outweighed a live owner"
        await stage.kill("a")
        assert await b.presence("n1") is Presence.RECONNECTING, (
            "held by a dead owner is neither gone nor connected"
        )

    play(story)


@pytest.mark.holds("B-10")
def test_whoever_takes_a_row_clears_its_departure(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        first = await a.claim("n1", seen_epoch=0, boot_id=WORKER)
        await a.release("n1", first.epoch)
        await a.claim("n1", seen_epoch=first.epoch, boot_id=WORKER)
        row = await a.owner_row("n1")
        assert row is not None
        assert row.disconnected_at is None

    play(story)


def test_all_presences_are_those_of_the_roster_and_agree_with_each_single_one(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        expected = {
            "held": Presence.CONNECTED,
            "orphan": Presence.RECONNECTING,
            "left": Presence.RECONNECTING,
            "gone": Presence.GONE,
            "never dialled": Presence.UNKNOWN,
        }
        ids = {name: await stage.node(name) for name in (*expected, "deregistered")}
        await a.claim(ids["held"], seen_epoch=0, boot_id=WORKER)
        await b.claim(ids["orphan"], seen_epoch=0, boot_id=WORKER)
        for name in ("left", "gone", "deregistered"):
            claim = await a.claim(ids[name], seen_epoch=0, boot_id=WORKER)
            await a.release(ids[name], claim.epoch)
        await stage.gone(ids["gone"])
        await stage.kill("b")
        await stage.roster().deregister(ids["deregistered"])
        everyone = await a.presences()
        assert everyone == {ids[name]: presence for name, presence in expected.items()}
        assert {view.id: view.presence for view in await stage.roster().nodes()} == everyone
        for node, presence in everyone.items():
            assert await a.presence(node) is presence
        assert await a.owner_row(ids["deregistered"]) is not None, "the control: its row is still there"

    play(story)


@pytest.mark.holds("B-22")
@pytest.mark.parametrize("timings", [Timings.production(), Timings.drill()], ids=["production", "drill"])
def test_the_grace_covers_the_slowest_honest_reconnect(timings: Timings) -> None:
    slowest = 2 * timings.reconnect_backoff_max_s + timings.handshake_s
    assert timings.reconnect_grace_s > slowest
    assert Timings.production().reconnect_grace_s == 90


@pytest.mark.holds("B-24")
def test_a_heartbeat_says_nothing_about_presence_nor_presence_about_a_heartbeat(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        node = await stage.node("worker")  # heartbeats, and has not dialled yet
        view = await stage.roster().node(node)
        assert view is not None
        assert (view.presence, view.status) == ("unknown", "healthy")
        await a.claim(node, seen_epoch=0, boot_id=WORKER)
        await stage.silence(node)
        view = await stage.roster().node(node)
        assert view is not None
        assert view.presence == "connected"

    play(story)


def test_instances_without_an_address_count_as_live(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a", address=""), await stage.replica("b")
        await a.claim("n1", seen_epoch=0, boot_id=WORKER)
        assert await b.presence("n1") is Presence.CONNECTED

    play(story)
