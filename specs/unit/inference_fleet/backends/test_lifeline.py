"""A model process ends with its worker, however the worker ends."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

from inference_fleet.backends import lifeline
from inference_fleet.settings import Timings

TIMINGS = Timings.drill()
GUARD = [sys.executable, "-I", "-S", str(Path(lifeline.__file__))]

# a parent that starts a guarded program, which tells its pid once it runs, and waits to be killed
PARENT = """
import os, signal, subprocess, sys
subprocess.Popen([*sys.argv[1:-1], str(os.getpid()), "sh", "-c", f"echo $$; exec sleep {sys.argv[-1]}"])
signal.pause()
"""


def test_a_child_ends_when_its_parent_is_killed_outright() -> None:
    forever = str(int(TIMINGS.request_s))
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *GUARD, forever], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            assert not _ended(child, within_s=0), "the control: it lives while its parent does"
            parent.send_signal(signal.SIGKILL)
            assert _ended(child, within_s=TIMINGS.backend_stop_s)
        finally:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, signal.SIGKILL)
            os.close(child)


def test_a_child_whose_parent_was_gone_before_it_could_ask_ends_itself() -> None:
    stranger = str(os.getppid())

    done = subprocess.run(
        [*GUARD, stranger, "echo", "alive"],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMINGS.backend_start_s,
    )

    assert (done.returncode, done.stdout) == (lifeline.ORPHANED, "")


def _ended(pidfd: int, *, within_s: float) -> bool:
    return bool(select.select([pidfd], [], [], within_s)[0])
