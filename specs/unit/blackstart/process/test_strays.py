"""Who is ours is decided by facts a stranger cannot share, and nobody else is ever signalled."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.process.strays import Sought, end_all, find, send
from blackstart.record import Identity, identity_of
from blackstart.record.identity import read_stat

from .players import marked, new_mark, running, sleeping

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

WITHIN_S = 10.0


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    with running(["sleep", new_mark()], start_new_session=True) as process:
        yield process


def identity(process: subprocess.Popen[bytes]) -> Identity:
    found = identity_of(process.pid)
    assert found is not None
    return found


@pytest.mark.holds("H-10")
def test_a_recycled_pid_is_not_signalled(stranger: subprocess.Popen[bytes]) -> None:
    ours = identity(stranger)
    recycled = Identity(ours.pid, ours.started - 1)
    assert send(recycled, signal.SIGKILL) is False
    assert find(Sought(leaders=(recycled,))) == []
    assert end_all(Sought(leaders=(recycled,)), within=WITHIN_S) == []
    assert stranger.poll() is None, "a stranger was killed for its number"
    assert send(ours, signal.SIGKILL) is True  # control
    assert stranger.wait() == -signal.SIGKILL


def test_a_zombie_is_not_found(stranger: subprocess.Popen[bytes]) -> None:
    ours = identity(stranger)
    assert [stat.pid for stat in find(Sought(leaders=(ours,)))] == [stranger.pid]
    stranger.kill()
    eventually(lambda: (read_stat(ours.pid) or pytest.fail("reaped")).state, "Z", within=WITHIN_S)
    assert find(Sought(leaders=(ours,))) == []


def test_tags_narrow_each_other_and_match_whole_values() -> None:
    mark = new_mark()
    environ = {"BLACKSTART_RUN": "run-12", "BLACKSTART_USER": "34", "PATH": os.environ["PATH"]}
    with running(["sleep", mark], env=environ) as process:
        eventually(lambda: marked(mark), [process.pid], within=WITHIN_S)
        assert [stat.pid for stat in find(Sought(run="run-12", user=34))] == [process.pid]
        for other in (
            Sought(run="run-1", user=34),
            Sought(run="run-12", user=3),
            Sought(run="run-12", user=34, spawn="x"),
        ):
            assert find(other) == []
        assert find(Sought(run="run-12", spare=frozenset({process.pid}))) == []


def test_a_session_is_found_after_its_leader_died_and_was_reaped() -> None:
    mark = new_mark()
    with running(["sh", "-c", f"env -i sleep {mark} & exec sleep {mark}"], start_new_session=True) as leader:
        eventually(lambda: sleeping(mark), 2, within=WITHIN_S)
        ours = identity(leader)
        leader.kill()
    assert len(marked(mark)) == 1
    assert end_all(Sought(leaders=(ours,)), within=WITHIN_S) == []
    assert marked(mark) == []


def test_a_folder_finds_who_works_in_it_but_not_who_was_there_before(tmp_path: Path) -> None:
    mark = new_mark()
    (tmp_path / "deep").mkdir()
    (tmp_path.parent / f"{tmp_path.name}-beside").mkdir()
    folder = str(tmp_path)
    with (
        running(["sleep", mark], cwd=tmp_path, env={}) as one,
        running(["sleep", mark], cwd=tmp_path / "deep", env={}) as other,
        running(["sleep", mark], cwd=tmp_path.parent / f"{tmp_path.name}-beside", env={}),
    ):
        started = identity(one).started
        assert {stat.pid for stat in find(Sought(folders=((folder, started),)))} == {one.pid, other.pid}
        assert find(Sought(folders=((folder, started + 1000),))) == []


def test_we_never_find_ourselves() -> None:
    me = identity_of(os.getpid())
    assert me is not None
    assert os.getpid() not in [stat.pid for stat in find(Sought(leaders=(me,)))]
