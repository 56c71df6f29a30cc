"""Every chat ends in exactly one of three ways, and a hang is none of them."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest

from blackstart.fleet.chat import PendingChat, Result, body_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

SOON = 5.0
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nx-blackstart-node: n1\r\nx-blackstart-route: relayed\r\n\r\n"


class Server:
    """One connection, answered by a function that has the socket once the request has been read."""

    def __init__(self, answer: Callable[[socket.socket], None]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.request = b""
        self.client_left = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self._thread.join(SOON)

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            with connection:
                connection.settimeout(SOON)
                while b"}" not in self.request:
                    self.request += connection.recv(65536)
                self._answer(connection)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(value: dict[str, Any] | str) -> bytes:
    return _chunk(b"data: " + (value if isinstance(value, str) else json.dumps(value)).encode() + b"\n\n")


def _piece(text: str, finish: str | None = None) -> bytes:
    return _event({"choices": [{"delta": {"content": text}, "finish_reason": finish}]})


def _sends(*parts: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(b"".join(parts))


def _chat(server: Server, *, stream: bool = True) -> PendingChat:
    return PendingChat(
        server.url, {"Authorization": "Bearer k"}, body_of("m", "hello", stream=stream), within=SOON
    )


def test_a_stream_with_its_last_event_is_complete_with_text_node_and_route() -> None:
    with Server(
        _sends(HEAD, _piece("Hel"), _piece("lo"), _piece("", "stop"), _event("[DONE]"), b"0\r\n\r\n")
    ) as server:
        chat = _chat(server).wait(within=SOON)
    assert (chat.result, chat.text, chat.pieces) == (Result.COMPLETE, "Hello", 2)
    assert (chat.node, chat.route, chat.finish_reason) == ("n1", "relayed", "stop")


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (HEAD,),
        (HEAD, _piece("Hel")),
        (HEAD, _piece("Hel"), b"0\r\n\r\n"),
        (HEAD, _piece("Hel", "stop"), b"0\r\n\r\n"),
    ],
    ids=[
        "before-the-head",
        "after-the-head",
        "in-the-text",
        "ended-cleanly-but-early",
        "without-the-last-event",
    ],
)
def test_a_stream_without_its_last_event_is_cut_wherever_it_ended(parts: tuple[bytes, ...]) -> None:
    with Server(_sends(*parts)) as server:
        chat = _chat(server).wait(within=SOON)
    assert chat.result is Result.CUT
    assert chat.why


def test_an_error_in_the_middle_of_a_stream_has_its_name_and_keeps_the_text_before_it() -> None:
    error = _event({"error": {"message": "no route to node n1", "type": "x", "code": "no_route"}})
    with Server(_sends(HEAD, _piece("Hel"), error, b"0\r\n\r\n")) as server:
        chat = _chat(server).wait(within=SOON)
    assert (chat.result, chat.error, chat.text) == (Result.ERROR, "no_route", "Hel")


def test_a_refusal_by_status_has_its_name_streamed_or_not() -> None:
    body = json.dumps({"error": {"message": "no route to node n1: nobody", "code": "no_route"}}).encode()
    refusal = b"HTTP/1.1 503 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )
    for stream in (True, False):
        with Server(_sends(refusal)) as server:
            chat = _chat(server, stream=stream).wait(within=SOON)
        assert (chat.result, chat.status, chat.error) == (Result.ERROR, 503, "no_route")
        assert "no route" in chat.why


def test_an_answer_that_is_no_json_is_an_error_that_names_the_status() -> None:
    with Server(_sends(b"HTTP/1.1 502 X\r\ncontent-length: 4\r\n\r\noops")) as server:
        chat = _chat(server, stream=False).wait(within=SOON)
    assert (chat.result, chat.error, chat.why) == (Result.ERROR, "http-502", "oops")


def test_a_silent_answer_is_a_hang_until_the_client_hangs_up() -> None:
    left = threading.Event()

    def silent(connection: socket.socket) -> None:
        connection.sendall(HEAD + _piece("Hel"))
        if connection.recv(1) == b"":
            left.set()

    with Server(silent) as server:
        pending = _chat(server)
        pending.wait_for_text(within=SOON)
        with pytest.raises(TimeoutError, match=r"a request hangs: no end within 0.05 s: under way"):
            pending.wait(within=0.05)
        assert not left.is_set()
        pending.hang_up()
        assert left.wait(SOON)
    assert (pending.chat.result, pending.chat.why) == (Result.CUT, "hung up")


def test_a_client_can_hang_up_before_the_first_byte() -> None:
    left = threading.Event()
    read = threading.Event()

    def silent(connection: socket.socket) -> None:
        read.set()
        if connection.recv(1) == b"":
            left.set()

    with Server(silent) as server:
        pending = _chat(server, stream=False)
        assert read.wait(SOON)
        pending.hang_up()
        assert left.wait(SOON)
    assert pending.chat.result is Result.CUT


def test_a_body_leaves_out_what_was_not_given() -> None:
    assert body_of("m", "p", seed=None, max_tokens=4) == {
        "model": "m",
        "messages": [{"role": "user", "content": "p"}],
        "max_tokens": 4,
    }
