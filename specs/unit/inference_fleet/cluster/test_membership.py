"""The beat of a real Membership against a real database."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from inference_fleet.cluster import Membership, Presence
from inference_fleet.settings import Timings
from inference_fleet.store import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from specs.unit.inference_fleet.conftest import Play, Stage

    from inference_fleet.cluster import Registry

WORKER = "worker-boot"


class Held:
    """What a session table would say, and what it was told it lost."""

    def __init__(self) -> None:
        self.sessions: dict[str, int] = {}
        self.lost: list[tuple[str, int]] = []

    async def on_lost(self, node_id: str, epoch: int) -> None:
        self.lost.append((node_id, epoch))
        self.sessions.pop(node_id)


def beating(registry: Registry, held: Held, *on_tick: Callable[[], Awaitable[None]]) -> Membership:
    return Membership(registry, held=lambda: held.sessions, on_lost=held.on_lost, on_tick=on_tick)


@pytest.mark.holds("B-13", "B-15", "B-249")
def test_a_real_membership_purges_by_the_derived_retention_and_not_by_its_floor(play: Play) -> None:
    """Two departures either side of the gap between floor and retention: the one that goes shows the purge ran."""
    timings = replace(Timings.drill(), departed_retention_floor_s=6.0)
    assert timings.departed_retention_s == 2 * timings.reconnect_grace_s > timings.departed_retention_floor_s

    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        for node in ("must-go", "must-stay"):
            claim = await a.claim(node, seen_epoch=0, boot_id=WORKER)
            await a.release(node, claim.epoch)
        await stage.age_departure("must-go", timings.departed_retention_s)
        await stage.age_departure("must-stay", timings.departed_retention_floor_s + 0.5)

        beats = asyncio.Semaphore(0)

        async def beaten() -> None:
            beats.release()

        running = asyncio.create_task(beating(a, Held(), beaten).run())
        try:
            async with asyncio.timeout(timings.start_s):
                await beats.acquire()
                await beats.acquire()
        finally:
            running.cancel()
        assert await a.owner_row("must-go") is None, "a departed row outlives its retention"
        assert await a.presence("must-stay") is Presence.GONE, "a departure was purged before the retention"

    play(story, timings=timings)


@pytest.mark.holds("B-14")
@pytest.mark.parametrize("timings", [Timings.production(), Timings.drill()], ids=["production", "drill"])
def test_the_retention_outlasts_every_grace(timings: Timings) -> None:
    for grace in (1.0, timings.reconnect_grace_s, timings.departed_retention_floor_s * 3):
        longer = replace(timings, reconnect_grace_s=grace)
        assert longer.departed_retention_s >= max(2 * grace, timings.departed_retention_floor_s)


@pytest.mark.holds("B-11")
def test_a_beat_sweeps_dead_replicas_and_its_log_tells_deleted_from_departed(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        for node in ("n1", "n2"):
            await a.claim(node, seen_epoch=0, boot_id=WORKER)
        await stage.kill("a")
        await beating(b, Held()).beat()

    play(story)
    assert "instance rows deleted=1 (a)" in caplog.text
    assert "connection rows left behind as departed=2 (n1 of a, n2 of a)" in caplog.text


def test_a_swept_replica_registers_again_and_takes_its_sessions_back(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        held = Held()
        held.sessions["n1"] = (await a.claim("n1", seen_epoch=0, boot_id=WORKER)).epoch
        await stage.kill("a")
        await beating(b, Held()).beat()
        assert await b.presence("n1") is Presence.RECONNECTING  # control: the peer did sweep it
        before = dict(held.sessions)
        await beating(a, held).beat()
        assert await b.presence("n1") is Presence.CONNECTED
        assert (held.lost, held.sessions) == ([], before)

    play(story)


def test_a_session_that_ends_while_its_row_is_read_is_not_taken_back_for_good(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        epoch = (await a.claim("n1", seen_epoch=0, boot_id=WORKER)).epoch
        await a.release("n1", epoch)
        looks = iter([{"n1": epoch}])  # the session ends right after the first look at the table
        ended = Membership(a, held=lambda: next(looks, {}), on_lost=Held().on_lost)
        await ended.beat()
        assert await a.presence("n1") is Presence.RECONNECTING, "a session that ended holds its node"
        held = Held()
        held.sessions["n1"] = epoch
        await beating(a, held).beat()
        assert await a.presence("n1") is Presence.CONNECTED  # the control: one that lives takes its row back

    play(story)


def test_a_session_whose_epoch_moved_on_is_reported_once_closed(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        held = Held()
        old = held.sessions["n1"] = (await a.claim("n1", seen_epoch=0, boot_id=WORKER)).epoch
        await b.claim("n1", seen_epoch=old, boot_id=WORKER)
        membership = beating(a, held)
        await membership.beat()
        await membership.beat()
        assert held.lost == [("n1", old)]

    play(story)


def test_an_outage_is_said_once_forgets_nothing_and_ends_by_itself(
    play: Play, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        held = Held()
        held.sessions["n1"] = (await a.claim("n1", seen_epoch=0, boot_id=WORKER)).epoch
        ticks: list[int] = []

        async def tick() -> None:
            ticks.append(1)

        membership = beating(a, held, tick)

        async def out() -> bool:
            raise DatabaseUnavailable("database gone fishing")

        with monkeypatch.context() as patch:
            patch.setattr(a, "heartbeat", out)
            for _ in range(3):
                await membership.beat()
        assert held.sessions, "an outage closed a session"
        assert not ticks
        await membership.beat()
        assert ticks == [1]
        assert held.lost == []

    caplog.set_level(logging.WARNING)
    play(story)
    assert caplog.text.count("gone fishing") == 1, caplog.text
    assert "database-unavailable is over" in caplog.text


def test_a_callback_that_fails_neither_stops_the_beat_nor_goes_unseen(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        after: list[int] = []

        async def broken() -> None:
            raise LookupError("broken callback")

        async def fine() -> None:
            after.append(1)

        await beating(a, Held(), broken, fine).beat()
        assert after == [1]

    play(story)
    assert "broken callback" in caplog.text


def test_a_replica_whose_id_was_taken_says_so_and_leaves_the_rows_alone(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Stage) -> None:
        old = await stage.replica("a", boot="p1")
        held = Held()
        held.sessions["n1"] = (await old.claim("n1", seen_epoch=0, boot_id=WORKER)).epoch
        await stage.replica("a", boot="p2")
        membership = beating(old, held)
        await membership.beat()
        await membership.beat()
        assert await old.presence("n1") is Presence.RECONNECTING, (
            "two processes fight over one id in the rows"
        )

    play(story)
    assert caplog.text.count("instance-id-taken") == 1
    assert "BLACKSTART_INSTANCE_ID" in caplog.text


@pytest.mark.holds("B-4", "B-5")
def test_a_replica_without_an_address_names_again_and_again_whom_only_it_reaches(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a", address="")
        held = Held()
        now = [0.0]
        membership = Membership(a, held=lambda: held.sessions, on_lost=held.on_lost, clock=lambda: now[0])
        await membership.beat()
        assert "only it can reach" not in caplog.text  # control: nobody is held yet
        for node in ("n2", "n1"):
            held.sessions[node] = (await a.claim(node, seen_epoch=0, boot_id=WORKER)).epoch
        for _ in range(3):
            await membership.beat()
        assert caplog.text.count("only it can reach workers=2: n1, n2") == 1, "said at every beat, or never"
        now[0] += stage.timings.missing_address_notice_s
        await membership.beat()
        assert caplog.text.count("only it can reach workers=2: n1, n2") == 2, (
            "said once for a cost paid for life"
        )

    play(story)


def test_a_replica_with_an_address_has_nothing_to_notice(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(stage: Stage) -> None:
        a = await stage.replica("a")
        held = Held()
        held.sessions["n1"] = (await a.claim("n1", seen_epoch=0, boot_id=WORKER)).epoch
        await beating(a, held).beat()

    play(story)
    assert "only it can reach" not in caplog.text


def test_after_an_outage_nobody_is_swept_before_the_others_could_speak(play: Play) -> None:
    async def story(stage: Stage) -> None:
        a, b = await stage.replica("a"), await stage.replica("b")
        await b.claim("n1", seen_epoch=0, boot_id=WORKER)
        held, now = Held(), [0.0]
        membership = Membership(a, held=lambda: held.sessions, on_lost=held.on_lost, clock=lambda: now[0])
        await membership.beat()
        await stage.kill("b")  # nobody could write for as long as this replica could not look
        now[0] += stage.timings.instance_liveness_s
        await membership.beat()
        assert [instance.id for instance in await a.instances()] == ["a", "b"], (
            "the first to look swept the others"
        )
        await b.heartbeat()
        assert await a.presence("n1") is Presence.CONNECTED
        await stage.kill("b")
        for _ in range(12):
            now[0] += stage.timings.instance_liveness_s / 8
            await membership.beat()
        assert [instance.id for instance in await a.instances()] == ["a"]  # control: it does sweep again

    play(story)
