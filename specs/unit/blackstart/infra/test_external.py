"""Somebody's Postgres: an own server stands in for it, so that it may be looked at from the other side."""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest

from blackstart.cluster.waiting import eventually
from blackstart.infra import Budgets, Infra, InfraError, OwnServer, admin, external
from blackstart.infra.names import run_prefix
from blackstart.process import Guardian, Spawner
from blackstart.record import Journal, Run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from specs.unit.blackstart.infra.conftest import Rig

SECRET = "s3cr3t"
WITHIN_S = 20.0
BUDGETS = Budgets(answer_s=3.0)


@pytest.fixture(scope="module")
def theirs(rig: Rig) -> Iterator[OwnServer]:
    with Infra(rig.run, rig.spawner) as infra:
        yield infra.own_server(node="postgres-theirs")


@contextlib.contextmanager
def a_run(folder: Path, url: str) -> Iterator[tuple[Run, Infra]]:
    run = Run.create(folder, argv=["spec"])
    Guardian.start(run)
    with (
        Guardian.connect(run) as lease,
        Journal(run, writer="spec") as journal,
        Spawner(run, journal, lease) as spawner,
        Infra(run, spawner, url) as infra,
    ):
        yield run, infra


def prepare(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE things (x int)")


def ours(server: OwnServer) -> tuple[str, ...]:
    return admin.databases(server.server, "blackstart_", within_s=WITHIN_S)


def test_a_run_on_an_external_server_says_so_and_leaves_it_as_it_was(
    tmp_path: Path, theirs: OwnServer
) -> None:
    with a_run(tmp_path, theirs.url()) as (run, infra):
        database = infra.database(prepare=prepare)
        assert database.name.startswith(run_prefix(run.id))
        assert infra.report().startswith("Postgres 18")
        assert "external (postgresql://postgres:***@127.0.0.1:" in infra.report()
        assert len(ours(theirs)) == 2, "control: the database and its template"
        assert theirs.server.password not in (run.dir / "run.json").read_text()
        assert theirs.server.password not in (run.dir / "ledger.jsonl").read_text()
    eventually(lambda: ours(theirs), (), within=WITHIN_S)


def test_databases_of_a_dead_run_are_dropped_by_the_next_and_those_of_a_living_one_stay(
    tmp_path: Path, theirs: OwnServer
) -> None:
    dead = f"{run_prefix('20200101-000000-dead0000')}t_0"
    admin.create_database(theirs.server, dead, within_s=WITHIN_S)
    with a_run(tmp_path / "one", theirs.url()) as (_, living):
        kept = living.database().name
        assert dead not in ours(theirs)
        with a_run(tmp_path / "two", theirs.url()) as (_, second):
            second.database()
            assert kept in ours(theirs)


def test_a_server_that_does_not_answer_is_told_in_time_without_its_password(rig: Rig) -> None:
    hasty = replace(BUDGETS, answer_s=2.0)  # the shortest that the driver's library waits
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://me:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/postgres"
        began = time.monotonic()
        with (
            Infra(rig.run, rig.spawner, url, budgets=hasty) as infra,
            pytest.raises(InfraError, match=r"does not answer: .*; try: ") as caught,
        ):
            shared_start(infra)
        assert time.monotonic() - began < 3 * BUDGETS.answer_s, "it was waited for longer than was said"
    assert SECRET not in str(caught.value)
    assert "me:***@127.0.0.1" in str(caught.value)


def test_a_wrong_password_is_told_without_being_shown(rig: Rig, theirs: OwnServer) -> None:
    url = theirs.url().replace(theirs.server.password, SECRET)
    infra = Infra(rig.run, rig.spawner, url, budgets=BUDGETS)
    with pytest.raises(InfraError, match="password authentication failed") as caught:
        shared_start(infra)
    assert SECRET not in str(caught.value)


def test_a_user_that_may_not_make_databases_is_told_what_to_grant(rig: Rig, theirs: OwnServer) -> None:
    with psycopg.connect(theirs.direct_url(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE modest LOGIN PASSWORD '{SECRET}'")
    url = f"postgresql://modest:{SECRET}@127.0.0.1:{theirs.server.port}/postgres"
    infra = Infra(rig.run, rig.spawner, url, budgets=BUDGETS)
    with pytest.raises(InfraError, match=r"may not make databases; try: ALTER ROLE modest CREATEDB"):
        shared_start(infra)
    with psycopg.connect(theirs.direct_url(), autocommit=True) as connection:
        connection.execute("ALTER ROLE modest CREATEDB")
    assert shared_start(infra) == theirs.version, "control: with the grant it is taken"


def test_a_server_that_is_too_old_is_told_what_is_needed() -> None:
    with pytest.raises(InfraError, match=r"Postgres 13\.4 is too old; try: a server of version 14 or later"):
        admin.require_version(130004, thing="postgres", value="postgresql://old")
    admin.require_version(140000, thing="postgres", value="postgresql://new")


def shared_start(infra: Infra) -> int:
    """What the run's first process does, without the run's memory of an earlier server."""
    from blackstart.infra.external import external_server  # noqa: PLC0415 - beside its only use

    return external_server(infra.choice, budgets=BUDGETS).version


@pytest.mark.parametrize(
    ("password", "text", "shown"),
    [
        ("s", "password s is wrong", "password *** is wrong"),
        ("e", "connection refused", "connection refused"),
        ("s3cr3t", "at xs3cr3tx", "at x***x"),
        ("a%40b", "no a@b and no a%40b", "no *** and no ***"),
    ],
)
def test_a_short_password_is_hidden_as_a_word_and_a_long_one_anywhere(
    password: str, text: str, shown: str
) -> None:
    assert external._without_password(OSError(text), f"postgresql://u:{password}@h/d") == shown
