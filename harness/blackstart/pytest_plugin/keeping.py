"""`--bs-keep`: a failed spec's cluster stays up to be looked at, until Ctrl-C."""

from __future__ import annotations

import signal
import socket
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from blackstart.pytest_plugin.host import host_of
from blackstart.pytest_plugin.options import options_of
from blackstart.pytest_plugin.stash import failed_so_far

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest


def hold_if_failed(request: pytest.FixtureRequest) -> None:
    """Waits for SIGINT or SIGTERM where the spec failed and keeping was asked for; then tear-down goes on."""
    config = request.config
    if not options_of(config).keep or not failed_so_far(request.node):
        return
    host = host_of(config)
    text = f"\nkept: {request.node.nodeid}\nits processes carry BLACKSTART_RUN={host.run.id}; logs: {host.run.dir}\nCtrl-C ends them\n"
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    try:
        with _hearing(signal.SIGINT, signal.SIGTERM) as heard:
            sys.stderr.write(text)
            sys.stderr.flush()
            heard()
    finally:
        if capture is not None:
            capture.resume_global_capture()


@contextmanager
def _hearing(*asked: signal.Signals) -> Iterator[Callable[[], None]]:
    """Gives what waits for one of these signals, also for one that came since.

    A mask would not do: a signal this thread blocks is given to any other thread, and whoever waits is not told.
    """
    ours, wakes = socket.socketpair()
    with ours, wakes:
        wakes.setblocking(False)
        woken = signal.set_wakeup_fd(wakes.fileno())
        before = {number: signal.signal(number, lambda *_: None) for number in asked}

        def heard() -> None:
            while ours.recv(1)[0] not in asked:
                pass

        try:
            yield heard
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(woken)
