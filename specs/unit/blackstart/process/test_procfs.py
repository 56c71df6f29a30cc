"""What /proc says, without secrets and without stumbling over processes that end meanwhile."""

from __future__ import annotations

import os
import subprocess
import time
from typing import TYPE_CHECKING

from blackstart.cluster.waiting import eventually
from blackstart.process import procfs
from blackstart.process.procfs import cmdline_of, cwd_of, raw_environ, scan, wait_executed

from .players import running

if TYPE_CHECKING:
    import pytest

WITHIN_S = 10.0
SHORT_S = 0.05


def test_a_command_line_is_shown_without_secrets() -> None:
    with running(["sh", "-c", "sleep 300; :", "--token", "hunter2"]) as process:
        shown = eventually(
            lambda: cmdline_of(process.pid), lambda line: line.startswith("sh "), within=WITHIN_S
        )
    assert shown.endswith(" --token ***")


def test_a_kernel_thread_or_zombie_has_its_short_name() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert cmdline_of(process.pid) == "[true]"
    assert process.pid not in [stat.pid for stat in scan()]
    process.wait()
    assert cmdline_of(process.pid) == "gone"
    assert cwd_of(process.pid) is None
    assert raw_environ(process.pid) is None


def test_a_process_without_environment_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [b"\0\0", b"\0\0", b"\0BLACKSTART_RUN=1\0\0"]
    monkeypatch.setattr(procfs, "raw_environ", lambda _: answers.pop(0))
    wait_executed(os.getpid(), within=WITHIN_S)
    assert answers == [], "returned before its environment could be seen"


def test_a_process_that_never_has_one_is_waited_for_in_bounded_time() -> None:
    began = time.monotonic()
    with running(["sleep", "300"], env={}) as process:
        wait_executed(process.pid, within=SHORT_S)
    assert SHORT_S <= time.monotonic() - began < WITHIN_S
    wait_executed(process.pid, within=WITHIN_S)  # gone: at once
    assert time.monotonic() - began < WITHIN_S
