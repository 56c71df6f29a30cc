"""A pid with its start time names one process; a zombie is nobody."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.record import Identity, identity_of
from blackstart.record.identity import read_stat, ticks_now

WITHIN_S = 10.0


@pytest.mark.holds("H-10")
def test_a_process_is_named_by_pid_and_start_time() -> None:
    before = ticks_now()
    with subprocess.Popen(["sleep", "300"]) as child:
        identity = identity_of(child.pid)
        assert identity is not None
        assert before <= identity.started <= ticks_now()
        assert identity != Identity(child.pid, identity.started + 1)
        child.kill()
    assert identity_of(child.pid) is None


@pytest.mark.holds("B-186")
def test_a_zombie_has_no_identity_although_signal_zero_reaches_it() -> None:
    child = subprocess.Popen(["true"])
    eventually(lambda: (read_stat(child.pid) or read_stat(1)).state, "Z", within=WITHIN_S)  # type: ignore[union-attr]  # pid 1 is there
    os.kill(child.pid, 0)
    assert identity_of(child.pid) is None
    child.wait()


def test_a_name_with_brackets_and_spaces_does_not_confuse_the_stat(tmp_path: Path) -> None:
    odd = f"{tmp_path}/a) (b c"
    Path(odd).symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "300"]) as child:
        stat = read_stat(child.pid)
        child.kill()
    assert stat is not None
    assert stat.parent == os.getpid()
