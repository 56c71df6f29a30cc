"""`--bs-keep`: a failed spec's cluster stays up to be looked at, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

from blackstart.pytest_plugin.host import host_of
from blackstart.pytest_plugin.options import options_of
from blackstart.pytest_plugin.stash import failed_so_far

if TYPE_CHECKING:
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
    asked = {signal.SIGINT, signal.SIGTERM}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, asked)  # whoever reads the text may answer at once
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
        signal.sigwait(asked)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if capture is not None:
            capture.resume_global_capture()
