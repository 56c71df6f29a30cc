"""What /proc says, without secrets and without stumbling over processes that end meanwhile."""

from __future__ import annotations

import os
import subprocess

from blackstart.process.procfs import cmdline_of, cwd_of, raw_environ, scan

from .players import running


def test_a_command_line_is_shown_without_secrets() -> None:
    with running(["sh", "-c", "sleep 300; :", "--token", "hunter2"]) as process:
        shown = cmdline_of(process.pid)
    assert "--token ***" in shown
    assert "hunter2" not in shown


def test_a_kernel_thread_or_zombie_has_its_short_name() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert cmdline_of(process.pid) == "[true]"
    assert process.pid not in [stat.pid for stat in scan()]
    process.wait()
    assert cmdline_of(process.pid) == "gone"
    assert cwd_of(process.pid) is None
    assert raw_environ(process.pid) is None
