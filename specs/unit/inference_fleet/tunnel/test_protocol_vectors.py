"""What `docs/protocol-vectors.json` says of WebSocket, yamux and the stream handshake is what the code reads and writes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from specs.unit.inference_fleet.vectors import VECTORS, ScriptedStream, code_of, vectors

from inference_fleet.settings import Deadline, Timings
from inference_fleet.tunnel import (
    HandshakeBroken,
    StreamRefused,
    StreamRequest,
    accept_stream,
    read_frame,
    read_reply,
    refuse_stream_as,
    write_frame,
)
from inference_fleet.tunnel.websocket import (
    Closed,
    FrameReader,
    FramingError,
    Opcode,
    Piece,
    Ping,
    frame_head,
    opened,
)
from inference_fleet.tunnel.worker import SeenEpoch, serve_stream
from inference_fleet.tunnel.yamux import Breach, Limits, Mux, ProtocolError
from inference_fleet.tunnel.yamux.events import (
    Acknowledged,
    Credited,
    Event,
    Finished,
    GoneAway,
    Opened,
    PingAnswered,
    Refused,
    Reset,
)
from inference_fleet.tunnel.yamux.wire import (
    ACK,
    DATA,
    FIN,
    GO_AWAY,
    PING,
    RST,
    SYN,
    WINDOW,
    Header,
    pack,
    unpack,
)
from inference_fleet.worker.resolver import resolver

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_fleet.worker.supervisor import Supervisor

TIMINGS = Timings.drill()
_KINDS = {"data": DATA, "window": WINDOW, "ping": PING, "go-away": GO_AWAY}
_FLAGS = {"SYN": SYN, "ACK": ACK, "FIN": FIN, "RST": RST}
_WORKER = VECTORS["worker"]


def soon() -> Deadline:
    return Deadline.after(TIMINGS.stream_header_s)


# ---- yamux


@vectors("yamux_headers")
def test_a_header_reads_and_is_written_as_the_page_says(vector: dict[str, Any]) -> None:
    kind, flags = _KINDS[vector["type"]], sum(_FLAGS[flag] for flag in vector["flags"])
    raw = bytes.fromhex(vector["hex"])
    assert unpack(raw) == Header(kind, flags, vector["stream"], vector["length"])
    assert pack(kind, flags, vector["stream"], vector["length"]) == raw


@vectors("yamux_malformed")
def test_a_header_that_no_stream_makes_legal_is_the_breach_the_page_names(vector: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError) as caught:
        unpack(bytes.fromhex(vector["hex"]))
    assert caught.value.breach.value == vector["breach"]


class _End:
    """A core, and payload in and out of it."""

    def __init__(self, vector: dict[str, Any]) -> None:
        self.mux = Mux(
            client=vector["end"] == "client",
            limits=Limits(**vector.get("limits", {})),
            accepting=vector.get("accepting", True),
        )
        self.told: list[str] = []
        self._unsent: dict[int, bytearray] = {}

    def do(self, what: str, *arguments: Any) -> None:
        """A command of whoever uses this end."""
        mux = self.mux
        if what in {"write", "zeros"}:
            stream, said = arguments
            data = bytes.fromhex(said) if what == "write" else bytes(said)
            self._unsent.setdefault(stream, bytearray()).extend(data)
            mux.offer(stream, len(data))
        elif what == "ping":
            mux.ping(0.0)
        else:
            commands: dict[str, Callable[..., object]] = {
                "open": mux.open,
                "accept": mux.accept,
                "finish": mux.finish,
                "reset": mux.reset,
                "go_away": mux.go_away,
            }
            commands[what](*arguments)

    def feed(self, data: bytes) -> None:
        """What came from the peer."""
        at = 0
        while at < len(data):
            due = self.mux.header_due
            piece = data[at : at + (due or self.mux.payload_due)]
            at += len(piece)
            if due:
                events = self.mux.receive_header(piece, 0.0)
            else:
                if self.mux.payload_stream:
                    self.told.append(f"payload {self.mux.payload_stream} {piece.hex()}")
                events = self.mux.receive_payload(len(piece))
            self.told += [_said(event) for event in events]

    def sent(self) -> list[tuple[Header, bytes]]:
        """Everything that goes to the peer now."""
        frames = []
        while (outgoing := self.mux.next_outgoing()) is not None:
            payload = b""
            if outgoing.length:
                waiting = self._unsent[outgoing.stream]
                payload = bytes(waiting[: outgoing.length])
                del waiting[: outgoing.length]
            frames.append((unpack(outgoing.header), payload))
        return frames


_WORDS: dict[type, str] = {
    Opened: "opened",
    Refused: "refused",
    Acknowledged: "acknowledged",
    Finished: "finished",
    Reset: "reset",
    Credited: "credited",
    GoneAway: "gone-away",
}


def _said(event: Event) -> str:
    if isinstance(event, PingAnswered):
        return "ping-answered"
    number = event.code if isinstance(event, GoneAway) else event.stream
    return f"{_WORDS[type(event)]} {number}"


@vectors("yamux_sessions")
def test_a_session_goes_as_the_page_says(vector: dict[str, Any]) -> None:
    end = _End(vector)
    for step in vector["steps"]:
        if "do" in step:
            end.do(*step["do"])
        elif "told" in step:
            assert end.told == step["told"]
            end.told.clear()
        elif "breach" in step:
            with pytest.raises(ProtocolError) as caught:
                end.feed(bytes.fromhex(step["in"]))
            assert caught.value.breach.value == step["breach"]
        elif "in" in step:
            end.feed(bytes.fromhex(step["in"]))
        elif "window" in step:
            stream, length = step["window"]
            frames = end.sent()
            assert {(header.type, header.flags, header.stream) for header, _ in frames} == {(DATA, 0, stream)}
            assert sum(header.length for header, _ in frames) == length, "not one window's worth"
        else:
            raw = b"".join(pack(*header) + payload for header, payload in end.sent())
            assert raw.hex() == step["out"]


def test_every_breach_has_a_vector() -> None:
    shown = {row["breach"] for row in VECTORS["yamux_malformed"]}
    shown |= {
        step["breach"] for row in VECTORS["yamux_sessions"] for step in row["steps"] if "breach" in step
    }
    assert shown == {breach.value for breach in Breach}


def test_every_type_every_flag_and_every_go_away_code_has_a_vector() -> None:
    rows = VECTORS["yamux_headers"]
    assert {row["type"] for row in rows} == set(_KINDS)
    assert {flag for row in rows for flag in row["flags"]} == set(_FLAGS)
    assert {row["length"] for row in rows if row["type"] == "go-away"} == {0, 1, 2}


# ---- WebSocket


@vectors("websocket")
@pytest.mark.parametrize("step", [1, 3, 1 << 20])
def test_a_websocket_brings_what_the_page_says_however_it_is_cut(vector: dict[str, Any], step: int) -> None:
    raw = bytes.fromhex(vector["hex"])
    reader = FrameReader(masked=vector["masked"])
    payload, told = bytearray(), []
    refused = None
    for at in range(0, len(raw), step):
        try:
            for item in reader.receive(memoryview(raw[at : at + step])):
                if isinstance(item, Piece):
                    payload += opened(item.data, item.key)
                elif isinstance(item, Ping):
                    told.append(f"ping {item.payload.hex()}")
                elif isinstance(item, Closed):
                    told.append(f"close {item.code} {item.reason}")
        except FramingError as error:
            refused = int(error.code)
            break
    assert refused == vector.get("close")
    assert (payload.hex(), told) == (vector.get("payload", ""), vector.get("told", []))


@vectors("websocket", only="written")
def test_a_message_is_written_as_the_page_says(vector: dict[str, Any]) -> None:
    payload, key = bytes.fromhex(vector["payload"]), bytes.fromhex(vector["key"])
    head = frame_head(Opcode.BINARY, len(payload), key)
    assert (head + opened(memoryview(payload), key)).hex() == vector["hex"]


# ---- the stream handshake


def _payload(vector: dict[str, Any]) -> bytes:
    stream = ScriptedStream(bytes.fromhex(vector["hex"]))
    return asyncio.run(read_frame(stream.as_stream, deadline=soon()))


@vectors("requests")
def test_a_request_is_read_and_written_as_the_page_says(vector: dict[str, Any]) -> None:
    request = StreamRequest(**vector["request"])
    assert StreamRequest.decode(_payload(vector)) == request
    stream = ScriptedStream()
    write_frame(stream.as_stream, request.encode())
    assert stream.told.hex() == vector["hex"]


@vectors("requests_read")
def test_other_spellings_of_a_request_are_read_alike(vector: dict[str, Any]) -> None:
    assert StreamRequest.decode(_payload(vector)) == StreamRequest(**vector["request"])


class _OneProcess:
    """A supervisor that runs the vectors' process and nothing else."""

    def serves(self, port: int, process_key: str) -> bool:
        process = _WORKER["process"]
        return (f"127.0.0.1:{port}", process_key) == (process["target"], process["process_key"])


@vectors("requests_refused")
def test_a_worker_refuses_with_the_code_the_page_names(vector: dict[str, Any]) -> None:
    stream = ScriptedStream(bytes.fromhex(vector["hex"]))
    asyncio.run(
        serve_stream(
            stream.as_stream,
            node=_WORKER["node"],
            seen=SeenEpoch(value=_WORKER["seen_epoch"]),
            resolve=resolver(http_port=1, supervisor=cast("Supervisor", _OneProcess())),
            timings=TIMINGS,
        )
    )
    assert code_of(bytes(stream.told)) == vector["refusal"]
    assert stream.closed


@vectors("replies")
def test_a_reply_is_read_as_the_page_says(vector: dict[str, Any]) -> None:
    stream = ScriptedStream(bytes.fromhex(vector["hex"]))
    if vector["ok"]:
        asyncio.run(read_reply(stream.as_stream, deadline=soon()))
        return
    with pytest.raises(StreamRefused) as caught:
        asyncio.run(read_reply(stream.as_stream, deadline=soon()))
    refused = caught.value
    told = {"code": refused.code, "message": refused.message, "evidence": refused.evidence}
    assert told == {field: vector[field] for field in told}


@vectors("replies", only="written")
def test_a_reply_is_written_as_the_page_says(vector: dict[str, Any]) -> None:
    stream = ScriptedStream()
    if vector["ok"]:
        accept_stream(stream.as_stream)
    else:
        refuse_stream_as(stream.as_stream, vector["code"], vector["message"])
    assert stream.told.hex() == vector["hex"]
    assert stream.closed is not vector["ok"]


@vectors("replies_unreadable")
def test_what_is_no_reply_is_neither_yes_nor_no(vector: dict[str, Any]) -> None:
    stream = ScriptedStream(bytes.fromhex(vector["hex"]))
    with pytest.raises(HandshakeBroken):
        asyncio.run(read_reply(stream.as_stream, deadline=soon()))
