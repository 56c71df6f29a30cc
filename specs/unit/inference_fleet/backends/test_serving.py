"""A listener takes its port at once, or says who to blame."""

from __future__ import annotations

import socket

import pytest

from inference_fleet.backends.serving import PortTaken, listen
from inference_fleet.settings.loopback import LOOPBACK


def test_nobody_is_refused_from_the_moment_a_listener_exists() -> None:
    with listen(LOOPBACK, 0) as listener, socket.create_connection(listener.getsockname()):
        pass


def test_a_taken_port_is_an_error_by_name() -> None:
    with listen(LOOPBACK, 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortTaken, match=f"{LOOPBACK}:{port}"):
            listen(LOOPBACK, port)
