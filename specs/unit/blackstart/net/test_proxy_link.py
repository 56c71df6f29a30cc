"""The road to one server, broken without touching the server."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.net.proxy import Mode
from blackstart.net.proxy_link import Link

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specs.unit.blackstart.net.conftest import Rig

WITHIN_S = 10.0


@pytest.fixture
def echo() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while chunk := connection.recv(65536):
                    connection.sendall(chunk)
            except ConnectionError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def link(rig: Rig, echo: int) -> Iterator[Link]:
    with Link(rig.spawner, rig.run, target_port=echo) as child:
        yield child


def dialled(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout=WITHIN_S)


def torn(link: Link) -> bool:
    """Whether a new connection is reset; the reset may come as early as the connect."""
    with pytest.raises(ConnectionResetError), dialled(link) as connection:
        connection.recv(1)
    return True


def answers(connection: socket.socket) -> bool:
    connection.sendall(b"x")
    return connection.recv(1) == b"x"


def test_a_refusing_link_tears_what_is_live_and_refuses_what_comes_until_healed(link: Link) -> None:
    with dialled(link) as live:
        assert answers(live), "control: the link passes before"
        link.refuse()
        with pytest.raises(ConnectionResetError):
            live.recv(1)
    with pytest.raises(ConnectionRefusedError):
        dialled(link)
    assert link.status().mode is Mode.REFUSE
    link.heal()
    with dialled(link) as live:
        assert answers(live)


def test_a_blackhole_keeps_connections_open_and_silent_and_a_healed_one_goes_on(link: Link) -> None:
    with dialled(link) as live:
        assert answers(live)
        link.blackhole()
        live.sendall(b"late")
        with dialled(link) as new:
            new.sendall(b"x")
            for connection in (live, new):
                connection.settimeout(0.2)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
            assert link.status().swallowed == 1
        link.heal()
        live.settimeout(WITHIN_S)
        assert live.recv(4) == b"late", "what was on its way was lost"


def test_a_resetting_link_resets_both_live_and_new_connections(link: Link) -> None:
    with dialled(link) as live:
        assert answers(live)
        link.reset()
        with pytest.raises(ConnectionResetError):
            live.recv(1)
    assert torn(link)
    assert link.status().reset == 1


def test_cut_tears_live_connections_and_lets_new_ones_pass(link: Link) -> None:
    with dialled(link) as live:
        assert answers(live)
        eventually(lambda: link.status().live, 1, within=WITHIN_S)
        assert link.cut() == 1
        with pytest.raises(ConnectionResetError):
            live.recv(1)
    with dialled(link) as new:
        assert answers(new)


def test_a_target_that_is_gone_looks_like_a_reset_and_is_counted(rig: Rig, link: Link) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with Link(rig.spawner, rig.run, target_port=port, node="link-nowhere") as nowhere:
        assert torn(nowhere)
        assert nowhere.status().failed == 1
    with dialled(link) as connection:
        assert answers(connection), "control: a target that is there"


def test_a_restarted_link_is_on_its_port_in_the_state_it_was_told(link: Link) -> None:
    port = link.port
    link.refuse()
    link.restart()
    assert link.port == port
    with pytest.raises(ConnectionRefusedError):
        dialled(link)
    link.heal()
    with dialled(link) as connection:
        assert answers(connection)
