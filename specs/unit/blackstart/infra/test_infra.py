"""One server a run, a database a spec: with a real Postgres."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from blackstart.cluster.waiting import eventually
from blackstart.infra import Infra, InfraError, admin, embedded
from blackstart.infra import binaries as binaries_module
from blackstart.infra.binaries import embedded_binaries, unprivileged
from blackstart.infra.names import template_name
from blackstart.infra.server import processes_of
from blackstart.process import Guardian, Spawner
from blackstart.record import Journal, Run, read_journal
from blackstart.record.identity import identity_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from specs.unit.blackstart.infra.conftest import Rig

WITHIN_S = 20.0
PREPARED: list[str] = []


def prepare(url: str) -> None:
    PREPARED.append(url)
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE things (x int)")
        connection.execute("INSERT INTO things VALUES (1)")


def prepare_badly(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SELECT nothing_of_that_name()")


@pytest.fixture
def own_infra(rig: Rig) -> Iterator[Infra]:
    with Infra(rig.run, rig.spawner) as infra:
        yield infra


def owners(pids: Iterable[int]) -> set[int]:
    """Whose processes these are; a server's children come and go, and one that is gone is nobody's."""
    found = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError):
            found.add(Path(f"/proc/{pid}").stat().st_uid)
    return found


def things(url: str) -> list[int]:
    with contextlib.closing(psycopg.connect(url)) as connection:
        return [row[0] for row in connection.execute("SELECT x FROM things ORDER BY x").fetchall()]


def admins(infra: Infra) -> int:
    with contextlib.closing(psycopg.connect(infra.postgres.url())) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'blackstart-admin'"
        ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.holds("B-202")
def test_nothing_starts_before_something_is_asked_for(tmp_path: Path) -> None:
    run = Run.create(tmp_path, argv=["spec"])
    Guardian.start(run)
    with (
        Guardian.connect(run) as lease,
        Journal(run, writer="spec") as journal,
        Spawner(run, journal, lease) as spawner,
    ):
        with Infra(run, spawner) as infra:
            assert infra.report() == "Postgres: embedded (never asked for)"
            assert not infra.started
        assert not [event for event in read_journal(run.dir) if event.kind == "spawn"]
        assert not (run.dir / "infra.json").exists()


@pytest.mark.holds("B-199")
def test_every_process_of_a_run_gets_the_same_server_and_only_one_is_started(rig: Rig) -> None:
    code = """
import sys
from pathlib import Path
from blackstart.infra import Infra
from blackstart.process import Guardian, Spawner
from blackstart.record import Journal, Run
run = Run.attach(Path(sys.argv[1]))
with Guardian.connect(run) as lease, Journal(run, writer="other") as journal, Spawner(run, journal, lease) as spawner:
    with Infra(run, spawner) as infra:
        print(infra.postgres.pid, infra.database().name)
"""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rig.run.dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    said = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], f"not everybody got the server: {said}"
    told = [out.split() for out, _ in said]
    with Infra(rig.run, rig.spawner) as infra:
        assert {pid for pid, _ in told} == {str(infra.postgres.pid)}
        started = [
            event for event in read_journal(rig.run.dir) if event.kind == "spawn" and event.node == "postgres"
        ]
        assert len(started) == 1
        assert len({name for _, name in told}) == 3
        assert admin.databases(infra.postgres, told[0][1], within_s=WITHIN_S) == (), (
            "a child left its database"
        )


def test_a_preparation_runs_once_and_every_clone_is_its_own(own_infra: Infra, rig: Rig) -> None:
    PREPARED.clear()
    one, other = own_infra.database(prepare=prepare), own_infra.database(prepare=prepare)
    with Infra(rig.run, rig.spawner) as second:
        third = second.database(prepare=prepare)
        assert things(third.url) == [1]
    assert len(PREPARED) == 1
    with psycopg.connect(one.url) as connection:
        connection.execute("INSERT INTO things VALUES (2)")
    assert (things(one.url), things(other.url)) == ([1, 2], [1])
    assert own_infra.report().endswith(" databases")
    assert "Postgres 18" in own_infra.report()


def test_clones_made_at_once_by_many_threads_all_come(own_infra: Infra) -> None:
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.append(own_infra.database(prepare=prepare).name))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN_S)
    assert len(set(made)) == 8


def test_a_template_whose_maker_was_killed_is_made_again(own_infra: Infra, rig: Rig) -> None:
    half = template_name(rig.run.id, f"{prepare.__module__}.{prepare.__qualname__}")
    admin.drop_database(own_infra.postgres, half, within_s=WITHIN_S)
    admin.create_database(own_infra.postgres, half, within_s=WITHIN_S)
    url = own_infra.database(prepare=prepare).url
    with contextlib.closing(psycopg.connect(url)) as connection:
        made = connection.execute("SELECT to_regclass('things')").fetchone()
    assert made == ("things",), "a half-made template was copied"


def test_a_preparation_that_fails_leaves_no_database_and_its_own_error(own_infra: Infra) -> None:
    before = admin.databases(own_infra.postgres, "blackstart_", within_s=WITHIN_S)
    with pytest.raises(psycopg.errors.UndefinedFunction):
        own_infra.database(prepare=prepare_badly)
    assert admin.databases(own_infra.postgres, "blackstart_", within_s=WITHIN_S) == before


def test_a_preparation_only_this_process_can_name_is_run_for_its_database_alone(own_infra: Infra) -> None:
    PREPARED.clear()
    database = own_infra.database(prepare=lambda url: prepare(url))  # noqa: PLW0108 - a lambda is what is tested
    assert [database.url] == PREPARED
    assert things(database.url) == [1]


@pytest.mark.holds("B-200")
def test_dropping_ends_connections_that_were_left_open_and_a_second_drop_is_fine(own_infra: Infra) -> None:
    database = own_infra.database()
    assert database.name in own_infra.databases
    with contextlib.closing(psycopg.connect(database.url)) as left_open:
        assert database.drop() == ""
        with pytest.raises(psycopg.OperationalError):
            left_open.execute("SELECT 1")
    assert database.drop() == ""
    assert database.name not in own_infra.databases
    assert admin.databases(own_infra.postgres, database.name, within_s=WITHIN_S) == ()


@pytest.mark.holds("B-200")
def test_a_cleanup_that_fails_is_told_and_the_next_one_still_runs(rig: Rig) -> None:
    infra = Infra(rig.run, rig.spawner)
    stuck, other = infra.database(), infra.database()
    stuck.server = type(stuck.server)(**{**stuck.server.to_state(), "password": "wrong"})
    troubles = infra.close()
    assert len(troubles) == 1
    assert stuck.name in troubles[0]
    assert admin.databases(infra.postgres, other.name, within_s=WITHIN_S) == ()
    assert admin.try_drop_database(infra.postgres, stuck.name, within_s=WITHIN_S) == ""


@pytest.mark.holds("B-200")
def test_the_admin_connection_is_closed_when_what_it_is_used_for_fails(own_infra: Infra) -> None:
    url = own_infra.postgres.url()

    def fail_within() -> None:
        with admin.admin_connection(url, within_s=WITHIN_S):
            eventually(lambda: admins(own_infra), 1, within=WITHIN_S)  # the control: an open one is seen
            raise AssertionError("of the spec")

    with pytest.raises(AssertionError, match="of the spec"):
        fail_within()
    eventually(lambda: admins(own_infra), 0, within=WITHIN_S)


@pytest.mark.holds("B-200")
def test_a_database_is_dropped_although_what_came_after_its_creation_failed(rig: Rig) -> None:
    name = ""

    def fail_after() -> None:
        nonlocal name
        with Infra(rig.run, rig.spawner) as infra:
            name = infra.database().name
            raise AssertionError("of the spec")

    with pytest.raises(AssertionError, match="of the spec"):
        fail_after()
    with Infra(rig.run, rig.spawner) as infra:
        assert name
        assert admin.databases(infra.postgres, name, within_s=WITHIN_S) == ()


def test_the_password_is_asked_for_and_is_in_no_file_of_the_evidence(own_infra: Infra, rig: Rig) -> None:
    server = own_infra.postgres
    wrong = type(server)(**{**server.to_state(), "password": "guess"})
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong.url(), connect_timeout=5)
    files = [path for path in rig.run.dir.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if server.password.encode() in path.read_bytes()]


def test_a_shared_server_that_died_is_an_error_with_its_log_and_never_quietly_another_one(
    tmp_path: Path,
) -> None:
    run = Run.create(tmp_path, argv=["spec"])
    Guardian.start(run)
    with (
        Guardian.connect(run) as lease,
        Journal(run, writer="spec") as journal,
        Spawner(run, journal, lease) as spawner,
    ):
        with Infra(run, spawner) as infra:
            server = infra.postgres
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: processes_of(infra.scratch.folder / "postgres"), (), within=WITHIN_S)
        eventually(
            lambda: identity_of(server.pid), None, within=WITHIN_S
        )  # it leaves its folder before it is over
        with (
            Infra(run, spawner) as later,
            pytest.raises(InfraError, match=r"server is dead.*postgres\.1\.log"),
        ):
            later.database()


def test_a_killed_user_leaves_no_server_and_no_data_folder(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from blackstart.infra import Infra
from blackstart.process import Guardian, Spawner
from blackstart.record import Journal, Run
run = Run.create(Path(sys.argv[1]), argv=["spec"])
Guardian.start(run)
lease = Guardian.connect(run)
spawner = Spawner(run, Journal(run, writer="user"), lease)
infra = Infra(run, spawner)
infra.own_server()
print(infra.postgres.pid, infra.scratch.folder, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as user:
        assert user.stdout is not None
        pid, folder = user.stdout.readline().split()
        scratch = Path(folder)
        folders = [scratch / "postgres", *scratch.glob("postgres-own-*")]
        assert len(folders) == 2
        assert all(processes_of(one) for one in folders), "control: servers work there"
        assert int(pid) in processes_of(folders[0])
        user.kill()
    eventually(scratch.exists, False, within=WITHIN_S)
    assert [processes_of(one) for one in folders] == [(), ()]


def test_where_namespaces_are_not_allowed_root_runs_it_as_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root must become somebody else")

    def without_namespaces(argv: Sequence[str]) -> str:
        return "not allowed" if argv[0] == "unshare" else binaries_module._trouble_running(argv)

    programs = embedded_binaries()
    if not all(folder.stat().st_mode & stat.S_IXOTH for folder in programs.bin.parents):
        # a checkout that only root may enter: nobody cannot run the programs in it, and the error says so
        with pytest.raises(
            InfraError, match=re.escape(f"where `nobody` may enter every folder above {programs.bin}")
        ):
            unprivileged(programs, runs=without_namespaces)
        return
    monkeypatch.setattr(
        embedded, "unprivileged", lambda binaries: unprivileged(binaries, runs=without_namespaces)
    )
    run = Run.create(tmp_path, argv=["spec"])
    Guardian.start(run)
    with (
        Guardian.connect(run) as lease,
        Journal(run, writer="spec") as journal,
        Spawner(run, journal, lease) as spawner,
        Infra(run, spawner) as infra,
    ):
        assert things(infra.database(prepare=prepare).url) == [1]
        owner = pwd.getpwnam("nobody").pw_uid
        assert owners(infra.postgres.pids) == {owner}
        assert Path(infra.postgres.data_dir).stat().st_uid == owner
