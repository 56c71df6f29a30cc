"""Signals become one exception, and leave nothing behind for the children of whoever called."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from blackstart.fleet.rehearsal import SIGNALS, Interrupted, interruptible


def test_where_no_signal_came_the_handlers_of_before_are_back() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    with interruptible():
        assert {number: signal.getsignal(number) for number in SIGNALS} != before, "the control"
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_heard_and_no_later_one(number: signal.Signals) -> None:
    story = f"""
import os, signal
from blackstart.fleet.rehearsal import Interrupted, interruptible
try:
    with interruptible():
        os.kill(os.getpid(), {int(number)})
        signal.pause()
except Interrupted as asked:
    print(asked, flush=True)
for later in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    os.kill(os.getpid(), later)
print("still here")
"""
    told = subprocess.run(
        [sys.executable, "-c", story], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert told.stdout.split("\n") == [number.name, "still here", ""], told.stderr
    assert told.returncode == 0


def test_an_interruption_is_a_keyboard_interrupt_so_that_no_except_exception_takes_it() -> None:
    assert issubclass(Interrupted, KeyboardInterrupt)
