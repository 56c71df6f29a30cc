"""The session table with real sessions: who sits, who drains, who is cut."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import pytest

from inference_fleet.route import HeldSession, SessionTable
from inference_fleet.settings import Deadline
from inference_fleet.tunnel import Ending, Session, SessionDead

from .piped import TIMINGS, pipe, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from inference_fleet.tunnel import Stream


class Tunnel:
    """A held session, its holder, and the worker's end of it."""

    def __init__(self, table: SessionTable, node: str, *, epoch: int, boot: str, version: int = 1) -> None:
        near, far = pipe()
        self.session = Session(near, client=False, timings=TIMINGS, name=f"front {epoch}")
        self.worker = Session(
            far, client=True, timings=TIMINGS, on_stream=self._serve, name=f"worker {epoch}"
        )
        self.held = HeldSession(
            session=self.session, epoch=epoch, boot_id=boot, credential_version=version, claimed_at=0.0
        )
        self.working = asyncio.create_task(self.worker.run())
        self.holding: asyncio.Task[Ending] = asyncio.create_task(table.hold(node, self.held))

    @staticmethod
    async def _serve(stream: Stream) -> None:
        while True:  # a stream that ends when its other end says so
            await stream.read_exactly(1, deadline=Deadline.after(TIMINGS.request_s))

    async def ended(self) -> Ending:
        async with asyncio.timeout(TIMINGS.start_s):
            await self.working
            return await self.holding


@contextlib.asynccontextmanager
async def holding(*tunnels: Tunnel) -> AsyncIterator[None]:
    """Let them start, and end them all."""
    await asyncio.sleep(0)
    try:
        yield
    finally:
        for tunnel in tunnels:
            await tunnel.session.close()
            await tunnel.ended()


def test_the_same_boot_drains_what_it_left_and_a_running_stream_finishes() -> None:
    async def story() -> None:
        table = SessionTable(drain_wait_s=TIMINGS.start_s)
        first = Tunnel(table, "n", epoch=1, boot="boot")
        async with holding(first):
            assert table.get("n") is first.held
            running = first.session.open_stream()

            second = Tunnel(table, "n", epoch=2, boot="boot")
            async with holding(second):
                assert table.get("n") is second.held
                assert table.held() == {"n": 2}
                await until(lambda: not first.session.connected)
                with pytest.raises(SessionDead):
                    first.session.open_stream()
                assert first.session.streams_open == 1, "the running stream goes on"
                assert running.error is None
                assert table.sessions.count(first.session) == 1

                running.abort()

                assert (await first.ended()).clean, "the drained session ends when its last stream does"
                assert table.held() == {"n": 2}

    asyncio.run(story())


def test_a_drain_ends_when_its_time_is_over() -> None:
    async def story() -> None:
        table = SessionTable(drain_wait_s=TIMINGS.reconnect_backoff_min_s)
        first = Tunnel(table, "n", epoch=1, boot="boot")
        async with holding(first):
            running = first.session.open_stream()
            second = Tunnel(table, "n", epoch=2, boot="boot")
            async with holding(second):
                await first.ended()
                assert isinstance(running.error, SessionDead)

    asyncio.run(story())


def test_another_boot_is_closed_at_once_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    conflicts: list[int] = []

    async def story() -> None:
        table = SessionTable(drain_wait_s=TIMINGS.start_s, on_conflict=lambda: conflicts.append(1))
        first = Tunnel(table, "n", epoch=1, boot="boot-one")
        async with holding(first):
            running = first.session.open_stream()
            second = Tunnel(table, "n", epoch=2, boot="boot-two")
            async with holding(second):
                await until(
                    first.holding.done,
                    "another boot's session is closed at once",
                    within_s=TIMINGS.handshake_s,
                )
                assert isinstance(running.error, SessionDead), "another boot's stream is not waited for"
                assert table.get("n") is second.held

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert conflicts == [1]
    assert "boot-one" in caplog.text
    assert "boot-two" in caplog.text


def test_an_older_claim_that_arrives_late_never_takes_the_seat() -> None:
    async def story() -> None:
        table = SessionTable(drain_wait_s=TIMINGS.start_s)
        newer = Tunnel(table, "n", epoch=5, boot="boot")
        async with holding(newer):
            older = Tunnel(table, "n", epoch=4, boot="boot")
            await asyncio.sleep(0)  # one turn: its holder has run up to where it would take the seat
            assert table.get("n") is newer.held, "the newest claim keeps the seat"
            await older.ended()
            assert newer.session.connected

    asyncio.run(story())


def test_an_epoch_that_moved_on_closes_exactly_its_own_session() -> None:
    async def story() -> None:
        table = SessionTable(drain_wait_s=TIMINGS.start_s)
        tunnel = Tunnel(table, "n", epoch=3, boot="boot")
        async with holding(tunnel):
            table.lost("n", 2)
            table.lost("other", 3)
            await asyncio.sleep(0)
            assert table.get("n") is tunnel.held
            table.lost("n", 3)
            await tunnel.ended()
            assert table.held() == {}

    asyncio.run(story())


def test_a_credential_that_changed_cuts_its_tunnels_draining_ones_too() -> None:
    async def story() -> None:
        table = SessionTable(drain_wait_s=TIMINGS.start_s)
        draining = Tunnel(table, "n", epoch=1, boot="boot", version=1)
        kept = Tunnel(table, "kept", epoch=1, boot="boot", version=4)
        gone = Tunnel(table, "gone", epoch=1, boot="boot", version=1)
        async with holding(draining, kept, gone):
            draining.session.open_stream()
            seated = Tunnel(table, "n", epoch=2, boot="boot", version=1)
            async with holding(seated):
                await until(lambda: not draining.session.connected)

                async def read(nodes: Collection[str]) -> dict[str, int]:
                    assert set(nodes) == {"n", "kept", "gone"}
                    return {"n": 2, "kept": 4}

                cut = await table.cut_revoked(read)

                assert sorted(cut) == ["gone", "n", "n"]
                for tunnel in (draining, seated, gone):
                    await tunnel.ended()
                assert table.held() == {"kept": 1}, "a deregistered node is cut, an unchanged one is kept"

    asyncio.run(story())


def test_a_session_seated_while_the_credentials_are_read_is_not_judged_by_what_was_asked_before_it() -> None:
    async def story() -> None:
        table = SessionTable(drain_wait_s=TIMINGS.drain_wait_s)
        first = Tunnel(table, "first", epoch=1, boot="boot", version=1)
        async with holding(first):

            async def read(nodes: Collection[str]) -> dict[str, int]:
                assert set(nodes) == {"first"}
                late = Tunnel(table, "late", epoch=2, boot="boot", version=1)
                await stack.enter_async_context(holding(late))
                await until(lambda: "late" in table.held())
                return {}

            async with contextlib.AsyncExitStack() as stack:
                assert await table.cut_revoked(read) == ["first"], "the control: what was asked for is judged"
                await first.ended()
                assert table.held() == {"late": 2}, "a tunnel was cut by a look that began before it"
                assert [session.connected for session in table.sessions] == [True]

    asyncio.run(story())


def test_going_away_waits_for_what_runs_and_says_whether_all_of_it_finished() -> None:
    async def story(drain_s: float, *, finish: bool) -> bool:
        table = SessionTable(drain_wait_s=drain_s)
        tunnel = Tunnel(table, "n", epoch=1, boot="boot")
        async with holding(tunnel):
            running = tunnel.session.open_stream()
            leaving = asyncio.create_task(table.go_away("stopping"))
            await until(lambda: not tunnel.session.connected)
            assert table.get("n") is None
            assert table.closing
            if finish:
                running.abort()
            return await leaving

    assert asyncio.run(story(TIMINGS.start_s, finish=True)) is True
    assert asyncio.run(story(TIMINGS.reconnect_backoff_min_s, finish=False)) is False


def test_a_tunnel_that_arrives_while_its_replica_leaves_is_sent_on() -> None:
    async def story() -> None:
        table = SessionTable(drain_wait_s=TIMINGS.reconnect_backoff_min_s)
        await table.go_away("stopping")
        late = Tunnel(table, "n", epoch=1, boot="boot")
        async with holding(late):
            await until(late.holding.done, "a tunnel is kept by a replica that is leaving")
            assert table.held() == {}

    asyncio.run(story())
