"""Every wait on the database ends, and an outage is never an answer."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from specs.unit.inference_fleet.route.piped import until

from inference_fleet.settings import Timings
from inference_fleet.store import (
    Database,
    DatabaseRefused,
    DatabaseTooOld,
    DatabaseUnavailable,
    StoreError,
    migrate_sync,
)
from inference_fleet.store.database import connection_options, require_server_version

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from specs.unit.inference_fleet.conftest import Play, Stage

QUICK = replace(Timings.drill(), database_statement_s=0.5)


@asynccontextmanager
async def relay_to(url: str) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """The same database behind a byte pump that stops pumping, without closing anything, once the event is set."""
    target = urlsplit(url)
    frozen = asyncio.Event()
    writers: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if frozen.is_set():
                continue
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection(target.hostname, target.port)
        writers.extend((writer, upstream[1]))
        async with asyncio.TaskGroup() as both:
            both.create_task(pump(reader, upstream[1]))
            both.create_task(pump(upstream[0], writer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    secret = f"{target.username}:{target.password}@" if target.username else ""
    try:
        yield urlunsplit(target._replace(netloc=f"{secret}127.0.0.1:{port}")), frozen
    finally:
        server.close()
        for writer in writers:
            writer.close()
        await server.wait_closed()


def test_a_database_that_is_not_there_is_unavailable_and_the_text_hides_the_password() -> None:
    with pytest.raises(DatabaseUnavailable) as caught:
        asyncio.run(Database.open("postgresql://u:hunter22@127.0.0.1:1/x", timings=Timings.drill(), name="s"))
    assert "127.0.0.1:1/x" in str(caught.value)
    assert "BLACKSTART_DATABASE_URL" in str(caught.value)
    assert "hunter22" not in str(caught.value)


def test_a_url_that_cannot_be_read_is_not_repeated() -> None:
    with pytest.raises(DatabaseRefused) as caught:
        connection_options("postgresql://u:hunter22@h/x?nonsense=1", timings=Timings.drill(), name="s")
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("password", [":hunter22", ""])
def test_a_wrong_password_is_a_verdict_and_not_an_outage(url: str, password: str) -> None:
    target = urlsplit(url)
    wrong = urlunsplit(target._replace(netloc=f"{target.username}{password}@{target.hostname}:{target.port}"))

    def opened() -> None:
        asyncio.run(Database.open(wrong, timings=Timings.drill(), name="s"))

    def migrated() -> None:
        migrate_sync(wrong, timings=Timings.drill())

    for way in (opened, migrated):
        with pytest.raises(StoreError) as caught:
            way()
        said = str(caught.value)
        assert isinstance(caught.value, DatabaseRefused), f"a wrong password counts as an outage: {said}"
        assert "did not accept the user or the password" in said
        assert "hunter22" not in said
    migrate_sync(url, timings=Timings.drill())  # the control: with the right one it does


def test_a_statement_past_its_limit_is_an_outage_and_never_an_empty_list(play: Play) -> None:
    async def story(stage: Stage) -> None:
        with pytest.raises(DatabaseUnavailable, match="statement timeout"):
            await stage.database.rows("SELECT 1 FROM pg_sleep(60)")
        assert await stage.database.rows("SELECT 1 AS one") == [{"one": 1}]  # control: the pool still serves

    play(story, timings=QUICK)


def test_a_server_that_stands_still_ends_the_wait_from_this_side(url: str) -> None:
    async def story() -> None:
        async with (
            relay_to(url) as (relayed, frozen),
            await Database.open(relayed, timings=QUICK, name="frozen") as database,
        ):
            assert await database.rows("SELECT 1 AS one") == [{"one": 1}]  # control: it did serve
            async with database.connection() as connection:
                frozen.set()
                started = time.monotonic()
                with pytest.raises(psycopg.OperationalError):
                    await connection.execute("SELECT 1")
                waited = time.monotonic() - started
        assert waited < QUICK.database_connect_s, f"waited {waited:.1f} s for a server that stands still"

    asyncio.run(story())


def test_connections_cut_by_the_server_are_replaced_at_once_and_before_anyone_gets_them(play: Play) -> None:
    async def story(stage: Stage) -> None:
        other = await stage.another_database("victim")
        together = asyncio.Barrier(4)

        async def use_four_at_once() -> int:
            async with other.connection() as connection:
                await together.wait()
                row = await (await connection.execute("SELECT pg_backend_pid() AS pid")).fetchone()
            assert row is not None
            return int(row["pid"])

        before = set(await asyncio.gather(*(use_four_at_once() for _ in range(4))))
        assert len(before) == 4
        ended = await stage.value(
            "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
            " WHERE application_name = 'victim' AND datname = current_database()"
        )
        assert ended >= 4
        started = time.monotonic()
        (outcome,) = await asyncio.gather(other.row("SELECT pg_backend_pid() AS pid"), return_exceptions=True)
        took = time.monotonic() - started
        assert took < stage.timings.database_connect_s / 2, (
            f"{took:.2f} s until a restarted server is used again"
        )
        assert isinstance(outcome, dict), f"a cut connection was handed out: {outcome!r}"
        assert outcome["pid"] not in before

    play(story)


def test_the_server_shows_which_replica_a_connection_belongs_to(play: Play) -> None:
    async def story(stage: Stage) -> None:
        other = await stage.another_database("replica-7")
        row = await other.row(
            "SELECT current_setting('application_name') AS name, current_setting('timezone') AS zone"
        )
        assert row == {"name": "replica-7", "zone": "UTC"}

    play(story)


def test_an_exception_inside_a_transaction_rolls_it_back(play: Play) -> None:
    async def story(stage: Stage) -> None:
        async def fail_halfway() -> None:
            async with stage.database.transaction() as connection:
                await connection.execute("INSERT INTO leases VALUES ('n', 'h', 1, clock_timestamp())")
                raise RuntimeError("halfway")

        with pytest.raises(RuntimeError, match="halfway"):
            await fail_halfway()
        assert await stage.value("SELECT count(*) FROM leases") == 0

    play(story)


def test_a_cancelled_statement_gives_its_connection_back(play: Play) -> None:
    async def story(stage: Stage) -> None:
        for _ in range(12):  # more than the pool holds
            task = asyncio.create_task(stage.database.rows("SELECT 1 FROM pg_sleep(60)"))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await stage.database.rows("SELECT 1 AS one") == [{"one": 1}]

    play(story)


TURNS = range(8)
"""In how many turns of the loop a connection passes from one task to the next, and some more."""


def test_whoever_is_cancelled_while_it_gives_its_connection_back_robs_nobody_who_waits(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference_fleet.store.database._POOL_MAX", 1)

    async def story(stage: Stage) -> None:
        only = await stage.another_database("narrow")

        async def cancel(user: asyncio.Task[Any], turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            user.cancel()

        async def use(turns: int) -> None:
            user = asyncio.current_task()
            assert user is not None
            async with only.connection() as connection:
                await connection.execute("SELECT 1")  # the library gives no turn away soon after an answer
                begun.append(asyncio.create_task(only.row("SELECT 1 AS one")))
                begun.append(asyncio.create_task(cancel(user, turns)))
                await asyncio.sleep(0)  # who waits is in the queue, and in the same turn this is over

        for turns in TURNS:
            begun: list[asyncio.Task[Any]] = []
            await asyncio.wait([asyncio.create_task(use(turns))])
            outcome, _ = await asyncio.gather(*begun, return_exceptions=True)
            assert outcome == {"one": 1}, f"{turns} turns later: a waiter was robbed: {outcome!r}"

    play(story, timings=replace(Timings.drill(), database_connect_s=1.0))


def test_a_cancel_in_the_turn_in_which_a_connection_comes_is_not_lost(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference_fleet.store.database._POOL_MAX", 1)

    async def story(stage: Stage) -> None:
        only = await stage.another_database("narrow")

        async def use(until: asyncio.Event) -> None:
            async with only.connection():
                await until.wait()

        for turns in TURNS:
            over, never = asyncio.Event(), asyncio.Event()
            user = asyncio.create_task(use(over))
            await until(lambda: not only._pool._pool)
            waits = asyncio.create_task(use(never))
            await until(lambda: len(only._pool._waiting) == 1)
            over.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            waits.cancel()
            _, left = await asyncio.wait([waits], timeout=QUICK.database_statement_s)
            assert not left, f"{turns} turns later: a cancelled task goes on"
            assert await only.row("SELECT 1 AS one") == {"one": 1}
            await user

    play(story)


def test_a_session_that_stands_still_in_a_transaction_is_ended_and_holds_up_nobody(play: Play) -> None:
    async def story(stage: Stage) -> None:
        other = await stage.another_database("other")

        async def stand_still() -> None:
            async with stage.database.transaction() as connection:
                await connection.execute("LOCK TABLE leases IN ACCESS EXCLUSIVE MODE")
                standing.set()
                await over.wait()
                await connection.execute("SELECT 1")

        standing, over = asyncio.Event(), asyncio.Event()
        stands = asyncio.create_task(stand_still())
        await standing.wait()

        async def served() -> bool:
            try:
                return await other.rows("SELECT 1 FROM leases") == []
            except DatabaseUnavailable:  # its own statement's time was over first
                return False

        await until(served, "a session that stands still keeps its locks")
        over.set()
        with pytest.raises(DatabaseUnavailable):
            await stands

    play(story, timings=QUICK)


def test_a_server_that_takes_no_writes_is_an_outage(play: Play) -> None:
    async def story(stage: Stage) -> None:
        async def write() -> None:
            async with stage.database.connection() as connection:
                await connection.execute("SET default_transaction_read_only = on")
                await connection.execute("INSERT INTO leases VALUES ('n', 'h', 1, clock_timestamp())")

        (outcome,) = await asyncio.gather(write(), return_exceptions=True)
        assert isinstance(outcome, DatabaseUnavailable), f"a standby is no outage: {outcome!r}"

    play(story)


def test_who_waits_for_a_connection_in_vain_is_told_what_the_pool_has(play: Play) -> None:
    async def story(stage: Stage) -> None:
        async with AsyncExitStack() as held:
            for _ in range(8):
                await held.enter_async_context(stage.database.connection())
            stage.database._pool.timeout = 0.2  # from here on: a connect takes what it takes
            with pytest.raises(DatabaseUnavailable, match="8 of at most 8 connections, 0 idle") as told:
                await stage.database.rows("SELECT 1")
        assert re.search(
            r"0 of \d+ connects failed, taking \d+ ms in all, 0 connections were lost", str(told.value)
        )

    play(story)


@pytest.mark.parametrize(("version", "shown"), [(130_022, "13.22"), (90_600, "9.600")])
def test_a_server_that_is_too_old_is_named(version: int, shown: str) -> None:
    with pytest.raises(DatabaseTooOld, match=f"Postgres {shown}: 14 or newer"):
        require_server_version(version, where="h:5432/x")


def test_the_oldest_supported_server_is_accepted() -> None:
    require_server_version(140_000, where="h:5432/x")
