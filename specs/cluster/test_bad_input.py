"""Whatever a stranger sends to a live fleet, each piece gets an answer that names it, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import socket
import struct
import threading
from typing import TYPE_CHECKING, Any

import pytest
from specs.unit.inference_fleet.tunnel.awaited import Awaited

from blackstart.fleet.http import client_of, error_code, error_message
from inference_fleet.frontend import bodies
from inference_fleet.settings import Deadline
from inference_fleet.tunnel import StreamRefused, read_reply
from inference_fleet.tunnel.worker.dial import dial
from inference_fleet.tunnel.yamux import wire
from inference_fleet.tunnel.yamux.wire import Breach

from .playing import NAME, peer_carrier, peer_session, relay
from .reaps import nothing_was_reaped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blackstart.fleet import Fleet

RIGHT_TO_LEFT = "\u202etxet"
DEEP = 10_000


@contextlib.contextmanager
def _unharmed(fleet: Fleet) -> Iterator[None]:
    """What stood before stands after: ownership and its epoch, statuses, models; and chat works both ways."""

    def standing() -> list[Any]:
        look = fleet.roster(via=1)
        assert look.error is None, look.error
        return [
            (node.id, node.name, node.status, node.raw["owner"], node.raw["epoch"], node.models)
            for node in look.nodes
        ]

    before = standing()
    yield
    assert standing() == before
    nothing_was_reaped(fleet)
    for via in (0, 1):
        chat = fleet.chat(via=via)
        assert chat.ok, str(chat)
    for frontend in fleet.frontends:
        assert "unexpected failure" not in frontend.log.text()


def _nested(depth: int) -> bytes:
    return b'{"model":"babbler-0","messages":' + b"[" * depth + b"]" * depth + b"}"


def _chat_body(**changes: Any) -> bytes:
    body = {"model": "babbler-0", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
    return json.dumps({**body, **changes}).encode()


def _padded(size: int) -> bytes:
    body = _chat_body(user="")
    return body[:-2] + b"u" * (size - len(body)) + body[-2:]


# what is wrong, the body, the answer's status and code, and the thing its text has to name
BODIES = [
    ("nothing", b"", 400, "invalid", "not JSON"),
    ("not JSON", b"hello", 400, "invalid", "not JSON"),
    ("half of it", _chat_body()[:-5], 400, "invalid", "not JSON"),
    ("not UTF-8", b'{"model":"\xff\xfe"}', 400, "invalid", "not JSON"),
    ("a list", b"[]", 400, "invalid", "`array`"),
    ("no model", b"{}", 400, "invalid", "`model`"),
    ("a model that is a number", _chat_body(model=7), 400, "invalid", "`$.model`"),
    ("an empty model", _chat_body(model=""), 400, "invalid", "`$.model`"),
    ("a model of 300 characters", _chat_body(model="m" * 300), 400, "invalid", "`$.model`"),
    ("a model with a NUL", _chat_body(model="a\0b"), 400, "invalid", "`$.model`"),
    ("a model with a right-to-left mark", _chat_body(model=RIGHT_TO_LEFT), 400, "invalid", "`$.model`"),
    ("a model with slashes", _chat_body(model="../../etc/passwd"), 404, "model_not_found", "etc/passwd"),
    ("a model nobody serves", _chat_body(model="babbler-9"), 404, "model_not_found", "'babbler-9'"),
    ("JSON nested 10,000 deep", _nested(DEEP), 400, "invalid", "nested deeper"),
    ("a body one byte past the cap", _padded(bodies.LARGE + 1), 413, "body_too_large", str(bodies.LARGE)),
]
# what a replica passes on, and the model process refuses
PASSED_ON = [
    ("no messages", _chat_body(messages=[]), 400, "invalid", "messages"),
    ("a negative number of tokens", _chat_body(max_tokens=-1), 400, "invalid", "max_tokens"),
    ("a temperature that is a text", _chat_body(temperature="hot"), 400, "invalid", "temperature"),
]


@pytest.mark.cluster(frontends=2, workers=1)
def test_chat_bodies_that_cannot_be_meant_are_refused_by_name(fleet: Fleet) -> None:
    with _unharmed(fleet), client_of(fleet.frontend(0).url, within=fleet.timings.request_s) as client:
        seen = {}
        for what, body, status, code, named in [*BODIES, *PASSED_ON]:
            answer = client.post("/v1/chat/completions", content=body, headers=fleet.admin.bearer)
            seen[what] = (answer.status_code, error_code(answer.json()))
            assert seen[what] == (status, code), f"{what}: {answer.text[:300]}"
            assert named in error_message(answer.json()), f"{what}: {answer.text[:300]}"
            assert "; try: " in error_message(answer.json()), f"{what} has no remedy: {answer.text[:300]}"
            assert (str(bodies.LARGE) in answer.text) == (code == "body_too_large"), what
        # the control: a body exactly at the cap is read to its end, and refused by whom it was passed to
        at_cap = client.post(
            "/v1/chat/completions", content=_padded(bodies.LARGE), headers=fleet.admin.bearer
        )
        assert at_cap.status_code == 413
        assert "; try: " in error_message(at_cap.json()), at_cap.text
        assert str(bodies.LARGE) not in at_cap.text, "the replica refused a body that is not past its cap"
        for budget in (b"0", b"-5", b"soon", b"9" * 40, "\u0661".encode()):
            bearer = fleet.admin.bearer["Authorization"].encode()
            answer = client.post(
                "/v1/chat/completions",
                content=_chat_body(),
                headers={b"Authorization": bearer, b"X-Blackstart-Budget-Ms": budget},
            )
            assert (answer.status_code, error_code(answer.json())) == (400, "invalid"), budget
            assert error_message(answer.json()).startswith("x-blackstart-budget-ms="), answer.text
            assert "; try: " in error_message(answer.json()), answer.text


NAMES = [
    "",
    " ",
    "n" * 300,
    "a/b",
    "../x",
    "a\0b",
    RIGHT_TO_LEFT,
    "worker 0",
    "-worker",
    "worker-",
    "<script>",
]


@pytest.mark.cluster(frontends=2, workers=1)
def test_names_and_registrations_that_cannot_be_meant_are_refused_by_name(fleet: Fleet) -> None:
    good = {
        "name": "worker-7",
        "node_type": "backend",
        "boot_id": "0123456789abcdef",
        "credential_sha256": "a" * 64,
        "capacity": {},
        "labels": {},
    }
    wrong: list[tuple[dict[str, Any], str]] = [
        *(({**good, "name": name}, "`$.name`") for name in NAMES),
        ({**good, "node_type": "king"}, "`$.node_type`"),
        ({**good, "boot_id": ""}, "`$.boot_id`"),
        ({**good, "credential_sha256": ""}, "`$.credential_sha256`"),
        ({**good, "credential_sha256": "A" * 64}, "`$.credential_sha256`"),
        ({**good, "labels": {f"k{number}": "v" for number in range(65)}}, "`$.labels"),
        ({**good, "labels": {"k": "v" * 257}}, "`$.labels"),
        ({**good, "labels": {"k": RIGHT_TO_LEFT}}, "`$.labels"),
        ({**good, "capacity": {"gpus": "many"}}, "`$.capacity"),
        ({key: value for key, value in good.items() if key != "name"}, "`name`"),
    ]
    token = {"Authorization": f"Bearer {fleet.secrets.registration_token}"}
    with _unharmed(fleet), client_of(fleet.frontend(0).url, within=fleet.timings.request_s) as client:
        for body, named in wrong:
            answer = client.post("/api/node/register", json=body, headers=token)
            assert (answer.status_code, error_code(answer.json())) == (400, "invalid"), (body, answer.text)
            assert named in error_message(answer.json()), (body, answer.text)
            assert "; try: " in error_message(answer.json()), (body, answer.text)
        for path in ("/api/nodes/a%00b", "/api/nodes/" + "n" * 300, "/api/nodes/%E2%80%AEtxet"):
            answer = client.get(path, headers=fleet.admin.session)
            assert (answer.status_code, error_code(answer.json())) == (400, "invalid"), (path, answer.text)
            assert "cannot be the id of a node" in error_message(answer.json()), (path, answer.text)
        huge = client.post("/api/node/register", content=b"x" * (bodies.MEDIUM + 1), headers=token)
        assert (huge.status_code, error_code(huge.json())) == (413, "body_too_large")
        deep = client.post("/api/node/register", content=b"[" * DEEP + b"]" * DEEP, headers=token)
        assert (deep.status_code, error_code(deep.json())) == (400, "invalid")
    # the control: the body they were all made from is taken
    with client_of(fleet.frontend(0).url, within=fleet.timings.request_s) as client:
        assert client.post("/api/node/register", json=good, headers=token).status_code == 201


@pytest.mark.cluster(frontends=2, workers=1, timings_s={"http_idle_s": 1.0})
def test_connections_that_say_nothing_or_too_much_are_ended_and_hold_nobody_up(fleet: Fleet) -> None:
    timings = fleet.timings
    key = f"Authorization: Bearer {fleet.admin.api_key}\r\n".encode()
    begun = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" + key
    sent: dict[str, bytes] = {
        "nothing at all": b"",
        "half a request line": b"GET /heal",
        "headers that never end": b"GET /healthz HTTP/1.1\r\nHost: x\r\n",
        "headers past every bound": b"GET /healthz HTTP/1.1\r\n" + b"X-Filler: " + b"f" * (256 * 1024),
        "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 64,
        "a body that never comes": begun + b"Content-Length: 100\r\n\r\n{",
        "a chunk that never ends": begun + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{",
        "an upgrade without a key": b"GET /api/cluster/peer HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    }
    within = timings.handshake_s + timings.body_read_s + timings.http_idle_s + timings.keepalive_timeout_s
    with _unharmed(fleet):
        quiet = {what: _Talker(fleet, data) for what, data in sent.items()}
        # while they hang there, others are answered
        assert fleet.chat(via=0).ok
        for what, talker in quiet.items():
            assert talker.ended(within), f"{what}: the connection is still open after {within:g} s"


class _Talker:
    """A connection that says its piece and then only listens, until the other side ends it."""

    def __init__(self, fleet: Fleet, data: bytes) -> None:
        self._within = fleet.timings.request_s
        self._socket = socket.create_connection(
            (fleet.frontend(0).place.host, fleet.frontend(0).port), timeout=self._within
        )
        self._data = data
        self._over = threading.Event()
        threading.Thread(target=self._talk, daemon=True).start()

    def ended(self, within: float) -> bool:
        """Whether the other side ended it in time."""
        over = self._over.wait(within)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        return over

    def _talk(self) -> None:
        with contextlib.suppress(OSError):  # a reset is an end
            self._socket.sendall(self._data)
            while self._socket.recv(65536):
                pass
        self._over.set()


def _length(count: int) -> bytes:
    return struct.pack(">I", count)


def _said(payload: bytes) -> bytes:
    return _length(len(payload)) + payload


def _asking(*, v: int = 1, origin: str = NAME, hop: int = 1, request: object = None) -> bytes:
    """A relay frame, sound but for what is changed; the request in it lacks its fields."""
    return _said(
        json.dumps({"v": v, "relay": {"from": origin, "hop": hop}, "request": request or {}}).encode()
    )


# what is wrong, what is said on the stream, and the thing the refusal's text has to name
FRAMES: list[tuple[str, bytes, str]] = [
    ("empty", _length(0), "a frame of 0 bytes"),
    ("one byte past the limit", _length(8193) + b"x" * 8193, "a frame of 8193 bytes"),
    ("a length of four gigabytes", b"\xff\xff\xff\xff" + b"x" * 64, "a frame of 4294967295 bytes"),
    ("not JSON", _said(b"hello"), "the relay frame cannot be read: JSON is malformed"),
    ("not UTF-8", _said(b"\xff\xfe"), "the relay frame cannot be read: JSON is malformed"),
    ("nested deep", _said(b"[" * 4000 + b"]" * 4000), "the relay frame cannot be read: Expected `object`"),
    ("another version", _asking(v=9), "relay version 9"),
    ("another's name", _asking(origin="frontend-7"), "speaks for frontend-7"),
    ("a second hop", _asking(hop=2), "hop 2"),
    ("no request in it", _asking(), "not a stream request: Object missing required field `tag`"),
    ("a request without a node", _asking(request={"tag": "http", "node": ""}), "`$.node`"),
    ("half a frame and no more", _length(100) + b"{", "no whole relay frame: "),
    ("nothing", b"", "no whole relay frame: "),
]


@pytest.mark.cluster(frontends=2, workers=1)
def test_stream_handshakes_that_cannot_be_meant_are_refused_and_the_link_lives_on(fleet: Fleet) -> None:
    owner = fleet.wait_owner(0, 0)
    with _unharmed(fleet):
        ends = asyncio.run(_handshakes(fleet))
        for (what, _, named), end in zip(FRAMES, ends, strict=True):
            assert isinstance(end, StreamRefused), f"{what}: {end!r}"
            assert end.code == "not-served", f"{what}: {end}"
            assert named in end.message, f"{what} is not named: {end.message}"
            assert "; try: " in end.message, f"{what} has no remedy: {end.message}"
            assert not end.evidence, f"{what}: a broken frame says nothing about the worker"
        # the control: a link of the same making relays
        assert asyncio.run(relay(fleet, node=fleet.node_id(0), epoch=owner.epoch)) is None


async def _handshakes(fleet: Fleet) -> list[BaseException | None]:
    timings = fleet.timings
    async with peer_session(fleet) as session:

        async def one(data: bytes) -> None:
            stream = session.open_stream()
            try:
                stream.write(data)
                await read_reply(
                    stream, deadline=Deadline.after(timings.relay_frame_s + timings.stream_header_s)
                )
            finally:
                stream.abort()

        ends = await asyncio.gather(*(one(data) for _, data, _ in FRAMES), return_exceptions=True)
        assert session.connected, "one broken stream ended the link of all"
        return ends


@pytest.mark.cluster(frontends=1, workers=1)
def test_bytes_that_are_no_yamux_end_that_link_alone(fleet: Fleet) -> None:
    epoch = fleet.wait_owner(0, 0).epoch
    for garbage in (b"\0" * 12, b"\xff" * 64, b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x01" + b"\xff" * 8):
        asyncio.run(_garbage(fleet, garbage))
    assert fleet.wait_owner(0, 0).epoch == epoch
    assert fleet.chat(via=0).ok
    # the control: a link that speaks yamux relays
    assert asyncio.run(relay(fleet, node=fleet.node_id(0), epoch=epoch)) is None


async def _garbage(fleet: Fleet, garbage: bytes) -> None:
    """Say it, and hear the link end; one that stays open is a `TimeoutError`."""
    await _until_closed(fleet, await peer_carrier(fleet), garbage)


async def _until_closed(fleet: Fleet, carrier: Awaited, said: bytes) -> bytes:
    """Say it on a carrier and give all that came back before the replica closed it."""
    timings, heard = fleet.timings, bytearray()
    try:
        await carrier.send(said)
        async with asyncio.timeout(timings.keepalive_interval_s + 2 * timings.keepalive_timeout_s):
            while (message := await carrier.receive()) is not None:
                heard += message
    finally:
        carrier.abort()
    return bytes(heard)


_PARTS = {"version": 0, "kind": wire.PING, "flags": wire.SYN, "stream": 0, "length": 7}


def _frame(**changes: int) -> bytes:
    """A frame's header: a sound ping, but for what is changed."""
    return struct.pack(">BBHII", *({**_PARTS, **changes}).values())


BROKEN_FRAMES: list[tuple[str, bytes, Breach]] = [
    ("another version", _frame(version=1), Breach.VERSION),
    ("a type there is not", _frame(kind=4), Breach.FRAME_TYPE),
    ("flags there are not", _frame(flags=0x10), Breach.FLAGS),
    (
        "flags that exclude each other",
        _frame(kind=wire.DATA, flags=wire.SYN | wire.RST, stream=1),
        Breach.FLAGS,
    ),
    ("a go-away code there is not", _frame(kind=wire.GO_AWAY, flags=0, length=9), Breach.GO_AWAY_CODE),
    ("a reset with a length", _frame(kind=wire.DATA, flags=wire.RST, stream=1), Breach.RESET_LENGTH),
    (
        "more than the window",
        _frame(kind=wire.DATA, flags=wire.SYN, stream=1, length=wire.INITIAL_WINDOW + 1),
        Breach.WINDOW_EXCEEDED,
    ),
    ("a ping on a stream", _frame(stream=1), Breach.STREAM_ID),
    ("data on the session's own stream", _frame(kind=wire.DATA, flags=0), Breach.STREAM_ID),
    ("a stream of the other side's", _frame(kind=wire.WINDOW, flags=wire.SYN, stream=2), Breach.ID_PARITY),
    ("a stream nobody opened", _frame(kind=wire.DATA, flags=0, stream=1), Breach.UNKNOWN_STREAM),
]
BOOT = "boot-played-by-a-spec"


@pytest.mark.cluster(frontends=1, workers=1)
def test_a_worker_that_breaks_yamux_in_any_field_is_named_and_sent_away_and_no_other_tunnel_notices(
    fleet: Fleet,
) -> None:
    before, credential = fleet.wait_owner(0, 0), secrets.token_hex(32)
    body = {
        "name": "worker-7",
        "node_type": "backend",
        "boot_id": BOOT,
        "credential_sha256": hashlib.sha256(credential.encode()).hexdigest(),
        "capacity": {},
        "labels": {},
    }
    with client_of(fleet.frontend(0).url, within=fleet.timings.request_s) as client:
        token = {"Authorization": f"Bearer {fleet.secrets.registration_token}"}
        answer = client.post("/api/node/register", json=body, headers=token)
    assert answer.status_code == 201, answer.text
    node, log, epoch = answer.json()["id"], fleet.frontend(0).log, 0
    for what, frame, breach in BROKEN_FRAMES:
        mark = log.mark()
        epoch, heard = asyncio.run(_tunnel(fleet, node, credential, epoch, frame))
        assert heard.endswith(_frame(kind=wire.GO_AWAY, flags=0, length=wire.GO_AWAY_PROTOCOL)), (what, heard)
        log.wait_for(f"node {node}: protocol error: {breach}", within=fleet.timings.handshake_s, after=mark)
        assert fleet.chat(via=0).ok, what
    # the control: sound frames are answered, and end no tunnel until it is left
    left = _frame(kind=wire.GO_AWAY, flags=0, length=wire.GO_AWAY_NORMAL)
    _, heard = asyncio.run(_tunnel(fleet, node, credential, epoch, _frame() + left))
    assert _frame(flags=wire.ACK) in heard
    assert not heard.endswith(_frame(kind=wire.GO_AWAY, flags=0, length=wire.GO_AWAY_PROTOCOL))
    assert fleet.wait_owner(0, 0) == before, "another worker's tunnel was disturbed"
    assert fleet.status(0, via=0) == "healthy"
    assert "unexpected failure" not in log.text()


async def _tunnel(
    fleet: Fleet, node: str, credential: str, seen_epoch: int, said: bytes
) -> tuple[int, bytes]:
    """One tunnel as that node: its epoch, and what was heard on it until it was closed."""
    dialled = await dial(
        fleet.frontend(0).url,
        node_id=node,
        credential=credential,
        boot_id=BOOT,
        seen_epoch=seen_epoch,
        timings=fleet.timings,
    )
    return dialled.epoch, await _until_closed(fleet, Awaited(dialled.carrier), said)
