"""A pid with its start time names one process; a zombie is nobody."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.record import Identity, identity_of
from blackstart.record.identity import read_stat, ticks_now

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN_S = 10.0


@contextmanager
def sleeping(program: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([program, "300"]) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.holds("H-10")
def test_a_process_is_named_by_pid_and_start_time() -> None:
    before = ticks_now()
    with sleeping("sleep") as child:
        identity = identity_of(child.pid)
        assert identity is not None
        assert before <= identity.started <= ticks_now()
        assert identity != Identity(child.pid, identity.started + 1)
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
    with sleeping(odd) as child:
        stat = read_stat(child.pid)
    assert stat is not None
    assert stat.parent == os.getpid()
