"""Who keeps a failed spec's cluster hears the signal that ends it, whenever it comes and whatever else runs."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.pytest_plugin.keeping import _hearing

SOON_S = 10.0
LONG_ENOUGH_S = 1.0  # for a thread with nothing to wait for to end in


def test_a_signal_that_comes_before_it_is_waited_for_is_heard_and_no_other_ends_the_wait() -> None:
    heard_of: list[str] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard_of.append("another"))
    try:
        with _hearing(signal.SIGINT, signal.SIGTERM) as heard:
            waiting = threading.Thread(target=heard, daemon=True)
            os.kill(os.getpid(), signal.SIGUSR1)
            # the control: it came, and lies there to be read
            eventually(lambda: heard_of, ["another"], within=SOON_S)
            waiting.start()
            waiting.join(LONG_ENOUGH_S)
            assert waiting.is_alive(), "the wait ended for a signal nobody asked for"
            os.kill(os.getpid(), signal.SIGTERM)
            waiting.join(SOON_S)
            assert not waiting.is_alive(), "nobody heard it"
        with _hearing(signal.SIGTERM) as heard:
            os.kill(os.getpid(), signal.SIGTERM)
            waiting = threading.Thread(target=heard, daemon=True)
            waiting.start()
            waiting.join(SOON_S)
            assert not waiting.is_alive(), "it came before it was waited for"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_after_the_wait_a_signal_is_again_what_it_was() -> None:
    woken = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(woken)
    with _hearing(signal.SIGINT):
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.set_wakeup_fd(woken) == woken
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
