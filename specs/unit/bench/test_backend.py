"""The far end of every transfer, over real sockets: what it sends is checked, and what it is sent."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from bench import bulk, client, web
from bench.backend import INLINE_BYTES, Backend
from bench.bulk import TAKE, ContentWrong, Request
from bench.churn import churn
from bench.content import content
from inference_fleet.settings import Timings

if TYPE_CHECKING:
    from collections.abc import Iterator

WITHIN = Timings.drill().request_s
SIZE = 3 * INLINE_BYTES + 7


@pytest.fixture(name="port", scope="module")
def serving() -> Iterator[int]:
    """One backend for all of these."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    backend = Backend(listener)
    thread = threading.Thread(target=backend.run)
    thread.start()
    yield port
    backend.stop()
    thread.join(WITHIN)


@pytest.mark.parametrize("direction", ["down", "up"])
@pytest.mark.parametrize("hashed", [False, True])
def test_a_transfer_is_clocked_and_its_content_checked(port: int, direction: str, hashed: bool) -> None:  # noqa: FBT001 - parametrized
    seen = client.transfer(port=port, direction=direction, size=SIZE, hashed=hashed, within=WITHIN)
    assert seen["ended"] > seen["began"]


def test_an_upload_that_differs_is_told_by_the_far_end(port: int) -> None:
    wrong = bytearray(content().at(0, 1000))
    wrong[-1] ^= 1
    with bulk.connect(port, within=WITHIN) as sock:
        sock.sendall(Request(TAKE, len(wrong)).encode() + wrong)
        assert not bulk.read_reply(sock).good, "the last byte was another"


def test_a_download_that_differs_ends_the_measurement(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = bulk.take_content

    def take(sock: socket.socket, size: int, *, hashed: bool) -> tuple[bool, bytes]:
        _, digest = taken(sock, size, hashed=hashed)
        return False, digest

    monkeypatch.setattr(bulk, "take_content", take)
    with pytest.raises(ContentWrong, match="pieces differ"):
        client.transfer(port=port, direction="down", size=SIZE, hashed=False, within=WITHIN)


def test_small_requests_are_answered_while_a_caller_takes_its_time(port: int) -> None:
    with bulk.connect(port, within=WITHIN) as slow:
        slow.sendall(Request(TAKE, SIZE).encode())  # and nothing of it yet
        assert len(client.probe(port=port, count=3, within=WITHIN)) == 3


def test_new_connections_are_counted_to_their_end(port: int) -> None:
    assert churn(port=port, count=50, at_once=8, within=WITHIN)["seconds"] > 0


def test_an_http_answer_has_the_length_that_was_asked_for(port: int) -> None:
    large = web.web_transfer(port=port, model="m", key="k", size=SIZE, hashed=True, within=WITHIN)
    assert large["ended"] > large["began"]
    assert len(web.web_probe(port=port, model="m", key="k", count=3, within=WITHIN)) == 3


def test_a_worker_may_ask_whether_it_is_ready(port: int) -> None:
    with bulk.connect(port, within=WITHIN) as sock:
        sock.sendall(b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        assert sock.recv(1024).startswith(b"HTTP/1.1 200 OK\r\n")
