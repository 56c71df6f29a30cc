"""A path blocked at the balancer counts only when somebody dialled it and was refused."""

from __future__ import annotations

import http.client
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from blackstart.core.fault import FaultNotConfirmed, Finding
from blackstart.faults import standing
from blackstart.faults.tunnel import PathBlocked
from blackstart.net.balancer import Action, Balancer
from blackstart.record import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from specs.unit.blackstart.faults.conftest import Rig

    from blackstart.faults import Fault, Standing

TUNNEL = r"^/api/node/[^/]+/tunnel$"
WITHIN_S = 10.0
SHORT_S = 0.2


@pytest.fixture
def backend() -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            head = connection.recv(65536)
            if b"Upgrade" in head:
                connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
                with suppress(ConnectionResetError):
                    while connection.recv(65536):
                        continue
            else:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def balancer(rig: Rig, backend: str) -> Iterator[Balancer]:
    with Balancer(rig.spawner, rig.run, backends=[backend]) as child:
        yield child


@pytest.fixture
def journal(rig: Rig) -> Iterator[Journal]:
    with Journal(rig.run, writer="tunnel") as own:
        yield own


def status(balancer: Balancer, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", balancer.port, timeout=WITHIN_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def block(
    rig: Rig, journal: Journal, fault: Fault, *, within_s: float = WITHIN_S
) -> AbstractContextManager[Standing]:
    return standing(
        fault, journal=journal, ledger=rig.spawner.ledger, user=None, within_s=within_s, late=True
    )


@pytest.mark.holds("B-194")
def test_a_block_is_confirmed_by_a_refused_dial_while_registration_passes(
    rig: Rig, journal: Journal, balancer: Balancer
) -> None:
    fault = PathBlocked(balancer, TUNNEL)
    with block(rig, journal, fault) as stands:
        assert fault.confirm().finding is Finding.INCONCLUSIVE, "confirmed before anybody dialled"
        assert status(balancer, "/api/node/n1/tunnel") == 503
        assert status(balancer, "/api/node/register") == 200
        assert stands.confirm().seen == "1 dials refused, 0 passed, 0 still live"
    assert status(balancer, "/api/node/n1/tunnel") == 200, "the block outlived its spec"


@pytest.mark.holds("B-194")
def test_a_block_that_nobody_dialled_into_proves_nothing(
    rig: Rig, journal: Journal, balancer: Balancer
) -> None:
    fault = PathBlocked(balancer, TUNNEL)
    with (
        pytest.raises(FaultNotConfirmed, match="inconclusive: 0 dials refused"),
        block(rig, journal, fault, within_s=SHORT_S),
    ):
        assert status(balancer, "/api/node/register") == 200


def test_a_live_tunnel_ends_with_the_block_unless_it_is_spared(balancer: Balancer) -> None:
    with socket.create_connection(("127.0.0.1", balancer.port), timeout=WITHIN_S) as tunnel:
        tunnel.sendall(
            b"GET /api/node/n1/tunnel HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        assert tunnel.recv(65536).startswith(b"HTTP/1.1 101")
        sparing = PathBlocked(balancer, TUNNEL, cut_live=False)
        sparing.inject()
        assert balancer.live(TUNNEL) == 1
        sparing.lift()
        cutting = PathBlocked(balancer, TUNNEL)
        cutting.inject()
        with pytest.raises(ConnectionResetError):
            tunnel.recv(1)
        assert cutting.confirm_lifted().finding is Finding.MISMATCH
        cutting.lift()
        assert cutting.confirm_lifted().finding is Finding.CONFIRMED


@pytest.mark.parametrize("action", [Action.BLACKHOLE, Action.RESET])
def test_other_ways_to_block_are_confirmed_by_their_own_count(balancer: Balancer, action: Action) -> None:
    fault = PathBlocked(balancer, TUNNEL, action=action)
    fault.inject()
    with socket.create_connection(("127.0.0.1", balancer.port), timeout=WITHIN_S) as dial:
        dial.sendall(b"GET /api/node/n1/tunnel HTTP/1.1\r\n\r\n")
        dial.settimeout(SHORT_S)
        with pytest.raises((TimeoutError, ConnectionResetError)):
            dial.recv(1)
    assert fault.confirm().finding is Finding.CONFIRMED
    assert fault.since.total == 1


def test_a_block_that_was_lifted_behind_its_back_is_a_mismatch(balancer: Balancer) -> None:
    fault = PathBlocked(balancer, TUNNEL)
    fault.inject()
    balancer.lift(balancer.rules[-1].id)
    assert status(balancer, "/api/node/n1/tunnel") == 200
    assert fault.confirm().finding is Finding.MISMATCH
