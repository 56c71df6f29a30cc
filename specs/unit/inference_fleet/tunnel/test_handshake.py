from __future__ import annotations

import asyncio
import json
import struct
from typing import TYPE_CHECKING

import pytest

from inference_fleet.settings import Deadline
from inference_fleet.tunnel import (
    FRAME_LIMIT,
    DeadlineExpired,
    FrameMalformed,
    HandshakeBroken,
    Refusal,
    SessionDead,
    StreamRefused,
    StreamRequest,
    StreamReset,
    accept_stream,
    read_frame,
    refuse_stream,
    refuse_stream_as,
    request_stream,
    write_frame,
)

from .linked import TIMINGS, Collector, soon, until, within
from .piped import Piped, piped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from inference_fleet.tunnel import Stream

REQUEST = StreamRequest(
    tag="backend", target="127.0.0.1:20051", process_key="babbler-0#1", node="n1", epoch=7, budget_ms=1500
)


def _answered(answer: Callable[[Stream], Awaitable[None]], body: Callable[[Piped], Awaitable[None]]) -> None:
    """Run `body` on a session whose peer serves every stream with `answer`."""

    async def story() -> None:
        async with piped(on_server_stream=answer) as both:
            await body(both)

    asyncio.run(story())


async def _linger(stream: Stream) -> None:
    """Keep a stream until its peer ends it."""
    seen = Collector()
    stream.set_protocol(seen)
    await seen.lost


# ---- the frame


@pytest.mark.holds("B-37")
def test_a_request_is_one_length_prefixed_json_frame_of_the_contracts_shape() -> None:
    payload = REQUEST.encode()
    assert json.loads(payload) == {
        "v": 1,
        "tag": "backend",
        "target": "127.0.0.1:20051",
        "process_key": "babbler-0#1",
        "node": "n1",
        "epoch": 7,
        "budget_ms": 1500,
    }
    assert StreamRequest.decode(payload) == REQUEST


def test_absent_fields_are_left_out_and_unknown_ones_are_a_newer_senders() -> None:
    plain = StreamRequest(tag="http", node="n1", epoch=0)
    assert json.loads(plain.encode()) == {"v": 1, "tag": "http", "target": "", "node": "n1", "epoch": 0}
    newer = json.dumps({**json.loads(plain.encode()), "color": "blue"}).encode()
    assert StreamRequest.decode(newer) == plain


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"{}",
        b'{"v":1,"tag":"http","node":"n1"}',
        b'{"v":"1","tag":"http","node":"n1","epoch":1}',
        b'{"v":1,"tag":"http","node":"n1","epoch":"1"}',
        b'{"v":1,"tag":"http","node":"n1","epoch":-1}',
        b'{"v":1,"tag":"http","node":"n1","epoch":9223372036854775808}',
        b'{"v":1,"tag":"","node":"n1","epoch":1}',
        b'{"v":1,"tag":"http","node":"","epoch":1}',
        b'{"v":1,"tag":7,"node":"n1","epoch":1}',
        b'{"v":1,"tag":"http","node":"n1","epoch":1,"budget_ms":0}',
        b'{"v":1,"tag":"http","node":"n1","epoch":1,"target":"' + b"x" * 321 + b'"}',
        b"[" * 3000,
        b'{"a":' * 800,
    ],
    ids=lambda payload: payload[:40].decode("latin-1"),
)
def test_anything_else_is_malformed(payload: bytes) -> None:
    with pytest.raises(FrameMalformed):
        StreamRequest.decode(payload)


def test_a_request_that_does_not_fit_a_frame_is_an_error_of_the_sender() -> None:
    with pytest.raises(FrameMalformed, match="4096"):
        StreamRequest(tag="http", node="n1", epoch=1, traceparent="\x01" * 4096).encode()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (struct.pack(">I", 0), "0 bytes"),
        (struct.pack(">I", FRAME_LIMIT + 1), "4097 bytes"),
        (b"\xff\xff\xff\xff", "4294967295 bytes"),
        (b"GET / HTTP/1.1", "bytes"),
    ],
)
def test_a_frame_of_an_illegal_length_is_refused_by_its_length_alone(raw: bytes, text: str) -> None:
    got: list[str] = []

    async def read(stream: Stream) -> None:
        with pytest.raises(FrameMalformed) as caught:
            await read_frame(stream, deadline=soon())
        got.append(str(caught.value))

    async def body(both: Piped) -> None:
        both.client.open_stream().write(raw)
        await until(lambda: bool(got))
        assert text in got[0]

    _answered(read, body)


def test_the_largest_frame_passes_and_a_larger_one_is_not_sent() -> None:
    got: list[bytes] = []

    async def read(stream: Stream) -> None:
        got.append(await read_frame(stream, deadline=soon()))

    async def body(both: Piped) -> None:
        stream = both.client.open_stream()
        with pytest.raises(FrameMalformed):
            write_frame(stream, bytes(FRAME_LIMIT + 1))
        with pytest.raises(FrameMalformed):
            write_frame(stream, b"")
        write_frame(stream, b"z" * FRAME_LIMIT)
        await until(lambda: bool(got))
        assert got == [b"z" * FRAME_LIMIT]

    _answered(read, body)


# ---- asking and answering


def test_an_accepted_stream_carries_on_with_whatever_follows() -> None:
    asked: list[StreamRequest] = []

    async def serve(stream: Stream) -> None:
        asked.append(StreamRequest.decode(await read_frame(stream, deadline=soon())))
        accept_stream(stream)
        stream.write(b"right behind the reply")
        await _linger(stream)

    async def body(both: Piped) -> None:
        stream = await request_stream(both.client, REQUEST, deadline=soon())
        assert asked == [REQUEST]
        seen = Collector()
        stream.set_protocol(seen)
        await until(lambda: bytes(seen.data) == b"right behind the reply")
        stream.abort()

    _answered(serve, body)


@pytest.mark.holds("B-37", "B-38")
@pytest.mark.parametrize("refusal", list(Refusal))
def test_a_refusal_arrives_as_what_it_is(refusal: Refusal) -> None:
    async def serve(stream: Stream) -> None:
        await read_frame(stream, deadline=soon())
        refuse_stream(stream, refusal, "because")

    async def body(both: Piped) -> None:
        with pytest.raises(StreamRefused) as caught:
            await request_stream(both.client, REQUEST, deadline=soon())
        assert (caught.value.refusal, caught.value.message) == (refusal, "because")
        await until(lambda: both.client.streams_open == 0)
        assert both.client.connected

    _answered(serve, body)


@pytest.mark.holds("B-41")
def test_a_code_of_a_newer_worker_passes_a_relay_unchanged_and_is_no_evidence() -> None:
    async def serve(stream: Stream) -> None:
        await read_frame(stream, deadline=soon())
        refuse_stream_as(stream, "quota-exceeded", "x" * 10_000)

    async def body(both: Piped) -> None:
        with pytest.raises(StreamRefused) as caught:
            await request_stream(both.client, REQUEST, deadline=soon())
        assert (caught.value.code, caught.value.evidence) == ("quota-exceeded", False)
        assert len(caught.value.message) == 500, "bounded, so that it fits its frame"

    _answered(serve, body)


@pytest.mark.holds("B-64")
def test_an_expired_caller_is_told_so_before_anything_is_opened_or_blamed() -> None:
    async def body(both: Piped) -> None:
        both.client_carrier.abort()
        with pytest.raises(DeadlineExpired, match="no time left"):
            await request_stream(both.client, REQUEST, deadline=Deadline.after(0))
        assert both.client.streams_open == 0

    _answered(_linger, body)


def test_no_reply_in_time_is_the_callers_deadline_and_resets_the_stream() -> None:
    ended: list[BaseException | None] = []

    async def ignore(stream: Stream) -> None:
        seen = Collector()
        stream.set_protocol(seen)
        ended.append(await seen.lost)

    async def body(both: Piped) -> None:
        with pytest.raises(DeadlineExpired):
            await request_stream(both.client, REQUEST, deadline=Deadline.after(TIMINGS.stream_header_s / 50))
        await until(lambda: bool(ended))
        assert isinstance(ended[0], StreamReset)
        assert both.client.streams_open == 0

    _answered(ignore, body)


def test_cancelling_a_request_resets_its_stream() -> None:
    ended: list[BaseException | None] = []

    async def ignore(stream: Stream) -> None:
        seen = Collector()
        stream.set_protocol(seen)
        ended.append(await seen.lost)

    async def body(both: Piped) -> None:
        asking = asyncio.create_task(request_stream(both.client, REQUEST, deadline=soon()))
        await until(lambda: both.server.streams_open == 1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await until(lambda: bool(ended))
        assert isinstance(ended[0], StreamReset)

    _answered(ignore, body)


@pytest.mark.parametrize(
    "reply",
    [b"\x00\x00\x00\x04null", b"\x00\x00\x00\x02{}", b"HTTP/1.1 200 OK\r\n\r\n", b"\x00\x00\x00\x01\xff"],
)
def test_a_reply_that_is_none_breaks_the_handshake_and_is_no_answer(reply: bytes) -> None:
    async def serve(stream: Stream) -> None:
        stream.write(reply)
        await _linger(stream)

    async def body(both: Piped) -> None:
        with pytest.raises(HandshakeBroken):
            await request_stream(both.client, REQUEST, deadline=soon())
        assert both.client.streams_open == 0
        assert both.client.connected

    _answered(serve, body)


def test_a_stream_that_ends_before_its_reply_breaks_the_handshake() -> None:
    async def leave(stream: Stream) -> None:
        await read_frame(stream, deadline=soon())
        stream.write(b"\x00\x00")
        stream.close()

    async def body(both: Piped) -> None:
        with pytest.raises(HandshakeBroken, match="2 of 4 bytes"):
            await request_stream(both.client, REQUEST, deadline=soon())

    _answered(leave, body)


@pytest.mark.holds("B-30")
def test_reset_and_session_death_stay_different_errors_during_the_handshake() -> None:
    async def reset(stream: Stream) -> None:
        await read_frame(stream, deadline=soon())
        stream.abort()

    async def reset_body(both: Piped) -> None:
        with pytest.raises(StreamReset) as caught:
            await request_stream(both.client, REQUEST, deadline=soon())
        assert type(caught.value) is StreamReset

    async def dead_body(both: Piped) -> None:
        asking = asyncio.create_task(request_stream(both.client, REQUEST, deadline=soon()))
        await until(lambda: both.server.streams_open == 1)
        both.client_carrier.inbox.put_nowait(None)
        with pytest.raises(SessionDead):
            await within(asking)

    _answered(reset, reset_body)
    _answered(_linger, dead_body)
