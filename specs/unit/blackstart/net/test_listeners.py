"""After a start the port must be held by our own child, and an error names whoever holds it instead."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from blackstart.net import StrangerListens, assert_listener, lease_ports, listener_of, name_holder
from blackstart.process.strays import Sought, find
from blackstart.record import Identity, identity_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blackstart.process.procfs import Stat

LISTENS = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"


@dataclass
class Family:
    """Stands for a handle: a process and its group."""

    identity: Identity

    @property
    def pid(self) -> int:
        return self.identity.pid

    def members(self) -> list[Stat]:
        return find(Sought(leaders=(self.identity,)))


@pytest.fixture(params=["itself", "grandchild"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Family, int]]:
    listen = [sys.executable, "-c", LISTENS]
    argv = listen if request.param == "itself" else ["sh", "-c", 'setsid "$@" <&0; :', "sh", *listen]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        identity = identity_of(process.pid)
        assert identity is not None
        yield Family(identity), port
        process.communicate()


@pytest.mark.holds("H-39")
def test_a_port_held_by_our_child_or_what_came_of_it_passes(server: tuple[Family, int]) -> None:
    family, port = server
    assert_listener(port, family)
    found = listener_of(port)
    assert found is not None
    assert "create_server" in found.cmdline


@pytest.mark.holds("H-39")
def test_a_port_held_by_a_stranger_is_named(server: tuple[Family, int]) -> None:
    family, _ = server
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(StrangerListens, match=rf"port {port}: held by pid {os.getpid()} \("):
            assert_listener(port, family)
        assert name_holder(port).startswith(f"port {port} is held by pid {os.getpid()} (")


def test_a_port_that_nobody_listens_on_is_told(server: tuple[Family, int]) -> None:
    family, _ = server
    with lease_ports(1, run="r", purpose="p") as lease:
        with pytest.raises(StrangerListens, match="nobody listens"):
            assert_listener(lease.ports[0], family)
        assert listener_of(lease.ports[0]) is None
        assert name_holder(lease.ports[0]).endswith("held by nobody that listens")
