"""A process that is awaited unreaped: it ends in time or with its whole group, and each that runs ends when told to stop."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest

from blackstart.attack.running import Interrupted, Stop, end_group, ended, run_out
from blackstart.cluster.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

SOON = 10.0


class Command:
    """A shell in a session of its own."""

    def __init__(self, line: str) -> None:
        self.process = subprocess.Popen(["sh", "-c", line], start_new_session=True)
        self.pid = self.process.pid

    def reap(self) -> int:
        return self.process.wait()


@contextmanager
def running(line: str) -> Iterator[Command]:
    command = Command(line)
    try:
        yield command
    finally:
        if command.process.returncode is None:
            end_group(command)
            command.reap()


def test_a_process_that_ends_in_time_has_its_own_exit_code() -> None:
    with running("exit 3") as command:
        assert run_out(command, within=SOON, stop=Stop()) == (True, 3)


def test_one_that_does_not_is_killed_with_its_whole_group() -> None:
    with running("sleep 600 & wait") as command:
        eventually(psutil.Process(command.pid).children, lambda found: len(found) == 1, within=SOON)
        [child] = psutil.Process(command.pid).children()
        assert run_out(command, within=0.0, stop=Stop()) == (False, -9)
        eventually(lambda: child.is_running() and child.status() != psutil.STATUS_ZOMBIE, False, within=SOON)


def test_a_told_stop_ends_each_row_that_runs() -> None:
    stop = Stop()
    with running("exec sleep 600") as first, running("exec sleep 600") as second:
        for command in (first, second):
            stop.add(command)
        stop.tell()
        for command in (first, second):
            assert ended(command.pid, within=SOON), "told to end"
            stop.remove(command)


def test_a_process_that_starts_after_the_stop_ends_at_once_and_is_not_judged() -> None:
    stop = Stop()
    stop.tell()
    with running("exec sleep 600") as command, pytest.raises(Interrupted):
        run_out(command, within=SOON, stop=stop)
    assert command.process.returncode == -9, "killed, and reaped"
