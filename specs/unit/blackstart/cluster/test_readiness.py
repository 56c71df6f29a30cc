"""Readiness is what a process answers, in its own protocol, and a look that fails says what it saw."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from blackstart.cluster.readiness import NodeNotReady, StartCancelled, look, wait_ready
from blackstart.core.topology import CallReady, HttpReady, LogReady, Place, Ready, TcpReady
from blackstart.net.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blackstart.process import Handle


class FakeHandle:
    """A process that lives for a number of looks."""

    def __init__(self, *, lives: int = 10**9, log: Path = Path("/dev/null")) -> None:
        self._lives = lives
        self.waits = 0
        self.log = SimpleNamespace(path=log)

    @property
    def alive(self) -> bool:
        return self.waits < self._lives

    def wait(self, *, within: float) -> None:
        assert within > 0
        self.waits += 1

    def crash_report(self) -> str:
        return "ended with exit status 3\n  | no feet"


def _handle(**options: Any) -> Handle:
    return cast("Handle", FakeHandle(**options))


def _place(port: int = 1) -> Place:
    return Place(name="app-0", index=0, ports=(port,), data_dir=Path("/x"))


def _server(reply: bytes) -> tuple[int, socket.socket]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                connection.sendall(reply)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):  # a close with unread bytes would be a reset
                    pass

    threading.Thread(target=serve, daemon=True).start()
    return int(listener.getsockname()[1]), listener


@pytest.mark.parametrize(
    ("ready", "reply", "held"),
    [
        (TcpReady(expect=b"PONG"), b"xxPONGxx", True),
        (TcpReady(expect=b"PONG"), b"", False),
        (TcpReady(expect=b"PONG"), b"NOPE", False),
        (HttpReady(path="/"), b"HTTP/1.0 200 OK\r\n\r\nyes", True),
        (HttpReady(path="/"), b"HTTP/1.0 503 X\r\n\r\nnot yet", False),
        (HttpReady(path="/"), b"garbage", False),
        (HttpReady(path="/", status=404), b"HTTP/1.0 404 X\r\n\r\n", True),
    ],
)
def test_a_listener_is_ready_only_when_it_answers_its_protocol(
    ready: Ready, reply: bytes, *, held: bool
) -> None:
    port, listener = _server(reply)
    with closing(listener):
        assert look(_place(port), _handle(), ready)[0] is held


@pytest.mark.needs("openssl")
def test_who_speaks_tls_is_believed_on_the_named_authoritys_word_alone(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    shown = ours.issue("app", hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.cert, shown.key)

    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    class Server(HTTPServer):
        def handle_error(self, *_: object) -> None:
            return  # a looker that believes nobody hangs up

    with Server(("127.0.0.1", 0), Ready) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            place = _place(server.server_port)
            assert look(place, _handle(), HttpReady(ca_file=str(ours.cert)))[0]
            held, seen = look(place, _handle(), HttpReady(ca_file=str(other.cert)))
            assert not held
            assert "CERTIFICATE_VERIFY_FAILED" in seen
        finally:
            server.shutdown()
            serving.join()


def test_nobody_listening_is_not_ready_and_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    held, seen = look(_place(port), _handle(), HttpReady())
    assert not held
    assert "ConnectionRefusedError" in seen


def test_a_log_line_makes_ready(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("starting\nserving on 7001\n")
    assert look(_place(), _handle(log=log), LogReady(pattern=r"serving on \d+"))[0]
    assert not look(_place(), _handle(log=log), LogReady(pattern="listening"))[0]


def test_a_callable_decides_and_may_raise_while_it_is_too_early() -> None:
    answers: Iterator[OSError | bool] = iter([OSError("too early"), False, True])

    def probe(place: Place) -> bool:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return place.name == "app-0" and answer

    ready = CallReady(probe=probe, text="its own word")
    assert [look(_place(), _handle(), ready)[0] for _ in range(3)] == [False, False, True]


def test_a_process_that_ends_before_ready_is_told_without_waiting_for_the_budget() -> None:
    handle = FakeHandle(lives=2)
    never = CallReady(probe=lambda _: False, text="its own word")
    with pytest.raises(
        NodeNotReady, match=r"app-0: ended before it was ready \(its own word\)\nended with exit status 3"
    ):
        wait_ready(_place(), cast("Handle", handle), never, within=600.0)
    assert handle.waits == 2


def test_one_that_is_never_ready_tells_looks_and_last_sight() -> None:
    never = CallReady(probe=lambda _: False, text="its own word")
    with pytest.raises(
        NodeNotReady, match=r"not ready within 0.01 s \(its own word; \d+ looks; last: it said no\)"
    ):
        wait_ready(_place(), _handle(), never, within=0.01)


def test_a_start_is_given_up_when_the_cluster_closes() -> None:
    never = CallReady(probe=lambda _: False, text="its own word")
    with pytest.raises(StartCancelled, match="app-0: start given up"):
        wait_ready(_place(), _handle(), never, within=600.0, cancelled=lambda: True)
