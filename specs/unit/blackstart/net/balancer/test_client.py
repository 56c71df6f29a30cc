"""A real balancer in its own process, between real sockets."""

from __future__ import annotations

import http.client
import os
import socket
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.net.balancer import Action, Balancer, Fate
from blackstart.net.proxy_control import ControlClient, ControlError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specs.unit.blackstart.net.conftest import Rig

TUNNEL = r"^/api/node/[^/]+/tunnel$"
WITHIN_S = 10.0


class Backend:
    """Answers every request with its name and what it was sent; an upgrade becomes an echo."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.heads: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            data = b""
            while b"\r\n\r\n" not in data:
                chunk = connection.recv(65536)
                if not chunk:
                    return
                data += chunk
            head, _, rest = data.partition(b"\r\n\r\n")
            self.heads.append(head)
            try:
                if b"Upgrade: websocket" in head:
                    self._echo(connection, rest)
                else:
                    body = self.name.encode()
                    answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
                    connection.sendall(answer % (len(body), body))
            except ConnectionError:
                return

    @staticmethod
    def _echo(connection: socket.socket, rest: bytes) -> None:
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n" + rest)
        while chunk := connection.recv(65536):
            connection.sendall(chunk)
        connection.sendall(b"bye")


@pytest.fixture
def backends() -> Iterator[list[Backend]]:
    made = [Backend("a"), Backend("b")]
    yield made
    for backend in made:
        backend.close()


@pytest.fixture(scope="module")
def balancer(rig: Rig) -> Iterator[Balancer]:
    with Balancer(rig.spawner, rig.run, head_s=2.0) as child:
        yield child


@pytest.fixture(autouse=True)
def _fresh(balancer: Balancer, backends: list[Backend]) -> Iterator[None]:
    balancer.set_backends([backend.address for backend in backends])
    yield
    for rule in balancer.rules:
        balancer.lift(rule.id)
    balancer.cut()


def get(balancer: Balancer, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", balancer.port, timeout=WITHIN_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def dialled(balancer: Balancer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", balancer.port), timeout=WITHIN_S)


@contextmanager
def tunnel(balancer: Balancer, path: str = "/api/node/n1/tunnel") -> Iterator[socket.socket]:
    with dialled(balancer) as connection:
        connection.sendall(
            f"GET {path} HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n".encode()
        )
        head = connection.recv(65536)
        assert head.startswith(b"HTTP/1.1 101"), head
        yield connection


def read_all(connection: socket.socket) -> bytes:
    received = b""
    while chunk := connection.recv(65536):
        received += chunk
    return received


@pytest.mark.holds("B-177", "B-193")
def test_it_is_a_process_of_its_own_and_requests_go_to_each_backend_in_turn(balancer: Balancer) -> None:
    assert balancer.handle.pid != os.getpid()
    assert {get(balancer, "/v1/models")[1] for _ in range(2)} == {b"a", b"b"}
    paths = balancer.dials("^/v1/models$", most=2)
    assert {dial.backend for dial in paths} == set(balancer.backends)
    assert all(dial.client.startswith("127.0.0.1:") for dial in paths)


@pytest.mark.holds("B-193")
def test_when_a_backend_is_gone_the_next_dial_reaches_another_one(
    balancer: Balancer, backends: list[Backend]
) -> None:
    backends[0].close()
    assert [get(balancer, "/v1/models") for _ in range(3)] == [(200, b"b")] * 3
    backends[1].close()
    before = balancer.seen()
    status, text = get(balancer, "/v1/models")
    assert status == 502
    assert balancer.backends[0] in text.decode(), "the answer does not name whom it tried"
    assert balancer.seen().since(before).no_backend == 1
    backends[:] = [Backend("c"), Backend("d")]
    balancer.set_backends([backend.address for backend in backends])
    assert get(balancer, "/v1/models")[0] == 200


@pytest.mark.holds("B-194")
def test_a_blocked_tunnel_is_answered_by_the_balancer_while_other_paths_pass(
    balancer: Balancer, backends: list[Backend]
) -> None:
    before = balancer.seen(TUNNEL)
    rule = balancer.block(TUNNEL)
    status, text = get(balancer, "/api/node/n1/tunnel")
    assert (status, b"rule of the balancer" in text) == (503, True)
    assert not any(b"tunnel" in head for backend in backends for head in backend.heads)
    assert get(balancer, "/api/node/register")[0] == 200, "registration was blocked too"
    after = balancer.seen(TUNNEL).since(before)
    assert (after.refused, after.passed) == (1, 0)
    assert balancer.dials(TUNNEL)[-1].rule is not None
    assert balancer.lift(rule) == 1
    with tunnel(balancer):
        assert balancer.seen(TUNNEL).since(before).passed == 1


def test_an_upgraded_connection_passes_bytes_both_ways_and_keeps_half_close(balancer: Balancer) -> None:
    payload = os.urandom(300_000)
    with tunnel(balancer) as connection:
        sender = threading.Thread(target=connection.sendall, args=(payload,))
        sender.start()
        received = b""
        while len(received) < len(payload):
            received += connection.recv(65536)
        sender.join()
        assert received == payload
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == b"bye", "what came after our end of file was lost"


def test_the_backend_is_told_who_the_client_is_and_that_one_request_is_all(
    balancer: Balancer, backends: list[Backend]
) -> None:
    get(balancer, "/who")
    head = next(head for backend in backends for head in backend.heads)
    assert b"X-Forwarded-For: 127.0.0.1" in head
    assert b"Connection: close" in head


def test_cut_resets_live_connections_of_a_path_and_no_others(balancer: Balancer) -> None:
    with tunnel(balancer, "/api/node/n1/tunnel") as one, tunnel(balancer, "/api/cluster/peer") as other:
        assert balancer.live(TUNNEL) == 1
        assert balancer.cut(TUNNEL) == 1
        with pytest.raises(ConnectionResetError):
            one.recv(1)
        other.sendall(b"still")
        assert other.recv(16) == b"still"
        eventually(lambda: balancer.live(TUNNEL), 0, within=WITHIN_S)


def test_a_stalled_connection_moves_nothing_and_is_not_closed_until_resumed(balancer: Balancer) -> None:
    with tunnel(balancer) as connection:
        assert balancer.stall(TUNNEL) == 1
        connection.sendall(b"late")
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(16)
        connection.settimeout(WITHIN_S)
        assert balancer.resume(TUNNEL) == 1
        assert connection.recv(16) == b"late", "control: the same connection works again"


def test_a_blackhole_accepts_and_never_answers_and_a_reset_is_a_reset(balancer: Balancer) -> None:
    before = balancer.seen()
    balancer.block("^/hole$", action=Action.BLACKHOLE)
    balancer.block("^/torn$", action=Action.RESET)
    with dialled(balancer) as connection:
        connection.sendall(b"GET /hole HTTP/1.1\r\n\r\n")
        eventually(lambda: balancer.seen().since(before).blackholed, 1, within=WITHIN_S)
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            connection.recv(1)
    with dialled(balancer) as connection:
        connection.sendall(b"GET /torn HTTP/1.1\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert balancer.seen().since(before).reset == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000, b"431"),
    ],
    ids=["garbage", "huge"],
)
def test_a_bad_client_is_told_why_and_harms_nobody(balancer: Balancer, sent: bytes, status: bytes) -> None:
    before = balancer.seen()
    with dialled(balancer) as connection, tunnel(balancer) as neighbour:
        connection.sendall(sent)
        neighbour.sendall(b"fine")
        assert neighbour.recv(16) == b"fine"
        assert read_all(connection).split(b" ")[1] == status
    assert balancer.seen().since(before).bad == 1
    assert balancer.dials("", most=1)[0].fate in {Fate.BAD, Fate.PASSED}


def test_clients_that_are_slow_or_silent_are_told_why_and_harm_nobody(balancer: Balancer) -> None:
    before = balancer.seen()
    with dialled(balancer) as slow, dialled(balancer) as silent, tunnel(balancer) as neighbour:
        slow.sendall(b"GET / HTTP/1.1\r\nX: a")
        neighbour.sendall(b"fine")
        assert neighbour.recv(16) == b"fine"
        assert [read_all(each).split(b" ")[1] for each in (slow, silent)] == [b"408", b"408"]
    assert balancer.seen().since(before).bad == 2


def test_a_client_that_leaves_in_the_middle_of_its_head_is_no_request(balancer: Balancer) -> None:
    before = balancer.seen()
    with dialled(balancer) as connection:
        connection.sendall(b"GET /half HTTP/1.1\r\n")
    with dialled(balancer) as connection:
        connection.sendall(b"GET /half HTTP/1.1\r\n")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert get(balancer, "/after")[0] == 200
    assert balancer.seen().since(before).total == 1
    assert "Traceback" not in balancer.handle.log.tail()


def test_a_restarted_balancer_is_on_its_port_and_knows_its_backends_and_rules(
    rig: Rig, backends: list[Backend]
) -> None:
    addresses = [backend.address for backend in backends]
    with Balancer(rig.spawner, rig.run, backends=addresses, node="balancer-again") as balancer:
        url, pid = balancer.url, balancer.handle.pid
        rule = balancer.block(TUNNEL)
        balancer.restart()
        assert (balancer.url, balancer.handle.pid != pid) == (url, True)
        assert get(balancer, "/v1/models")[0] == 200
        assert get(balancer, "/api/node/n1/tunnel")[0] == 503
        assert balancer.hits(rule) == 1
        assert balancer.lift(rule) == 1
        with pytest.raises(KeyError, match="no such rule"):
            balancer.lift(rule)


def test_a_balancer_that_may_come_later_is_waited_for_by_its_first_command_and_never_again(
    rig: Rig, backends: list[Backend], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[int] = []
    wait = ControlClient.wait_until_answers

    def counted(client: ControlClient, **how: Any) -> None:
        waited.append(1)
        wait(client, **how)

    monkeypatch.setattr(ControlClient, "wait_until_answers", counted)
    with Balancer(rig.spawner, rig.run, node="balancer-later", later=True) as child:
        child.set_backends(child.backends)  # it was started with these
        assert waited == [], "what may come later was waited for"
        child.set_backends([backends[0].address])
        assert get(child, "/v1/models") == (200, b"a")
        child.block(TUNNEL)
        assert waited == [1]
        child.restart()  # the control: who does not say later finds it ready
        assert waited == [1, 1]
        assert get(child, "/api/node/n1/tunnel")[0] == 503


def test_commands_need_the_token(balancer: Balancer) -> None:
    stranger = ControlClient(host="127.0.0.1", port=balancer._control_port, token="guess", name="stranger")
    with pytest.raises(ControlError, match="wrong token"):
        stranger.command("cut", pattern="")
    with pytest.raises(ControlError, match="unknown command"):
        balancer.control.command("explode")
    with pytest.raises(ControlError, match="no regular expression"):
        balancer.cut("(")
    with pytest.raises(ControlError, match="not HOST:PORT"):
        balancer.set_backends(["nowhere"])


def test_its_token_is_in_no_argument_and_it_ends_with_status_zero_when_asked(rig: Rig) -> None:
    with Balancer(rig.spawner, rig.run, node="balancer-asked") as child:
        assert child._token not in " ".join(child.handle.argv)
        assert child.stop().code == 0
        assert "balancer-asked" in child.describe_death()
