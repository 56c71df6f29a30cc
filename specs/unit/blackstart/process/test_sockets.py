"""Whether a port is free and who has it, as the kernel sees it."""

from __future__ import annotations

import os
import socket

import pytest

from blackstart.net import lease_ports
from blackstart.process.sockets import Holder, holders, is_free


@pytest.mark.holds("H-39")
@pytest.mark.parametrize(
    ("family", "address"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")],  # noqa: S104 - to be seen
    ids=["loopback", "any", "any-6"],
)
def test_a_listener_is_seen_and_named_whatever_it_bound(family: int, address: str) -> None:
    with lease_ports(1, run="spec", purpose="spec") as lease, socket.socket(family) as server:
        (port,) = lease.ports
        assert is_free(port)
        assert holders(port) == []
        server.bind((address, port))
        server.listen()
        assert not is_free(port)
        assert [holder.pid for holder in holders(port)] == [os.getpid()]


@pytest.mark.holds("H-41")
def test_connections_in_time_wait_do_not_make_a_port_taken() -> None:
    with lease_ports(1, run="spec", purpose="spec") as lease:
        (port,) = lease.ports
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(("127.0.0.1", port))
            server.listen()
            with socket.create_connection(("127.0.0.1", port)) as client:
                accepted, _ = server.accept()
                accepted.close()  # the server's side closes first: it is the one that keeps the port in TIME_WAIT
                assert client.recv(1) == b""
        with socket.socket() as strict, pytest.raises(OSError, match="in use"):
            strict.bind(("127.0.0.1", port))  # control: a bind that does not reuse addresses fails
        assert is_free(port)


def test_a_client_on_the_port_is_no_listener() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        assert holders(client.getsockname()[1]) == []


def test_a_holder_reads_as_a_person_would_say_it() -> None:
    assert str(Holder(7, "python -m http.server")) == "pid 7 (python -m http.server)"
    assert str(Holder(0, "")) == "a process that may not be looked up"
