"""The framing alone: bytes in any pieces, every breach by name, and the websockets library as the other end."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame as LibraryFrame
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.uri import parse_uri

from inference_fleet.tunnel.websocket import (
    CONTROL_BYTES,
    IDLE_FRAMES,
    MESSAGE_BYTES,
    CloseCode,
    Closed,
    FrameReader,
    FramingError,
    Opcode,
    Piece,
    Ping,
    Pong,
    close_payload,
    frame_head,
    opened,
    turned,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY = b"\x01\x20\xfe\x7f"


def read(reader: FrameReader, chunks: Iterable[bytes]) -> list[bytes | Ping | Pong | Closed]:
    """What was told, pieces that follow each other joined."""
    told: list[bytes | Ping | Pong | Closed] = []
    for chunk in chunks:
        for one in reader.receive(memoryview(chunk)):
            if not isinstance(one, Piece):
                told.append(one)
                continue
            data = opened(one.data, one.key)
            if told and isinstance(told[-1], bytes):
                told[-1] += data
            else:
                told.append(data)
    return told


def whole(opcode: Opcode, payload: bytes, key: bytes = b"") -> bytes:
    return frame_head(opcode, len(payload), key) + opened(memoryview(payload), key)


@settings(deadline=None)  # a busy machine is slow, not wrong
@given(
    frames=st.lists(
        st.tuples(
            st.sampled_from([Opcode.BINARY, Opcode.PING, Opcode.PONG]), st.integers(0, 125), st.booleans()
        ),
        max_size=8,
    ),
    long=st.sampled_from([0, 126, 65_535, 65_536]),
    cuts=st.lists(st.integers(0, 70_000), max_size=12),
    masked=st.booleans(),
)
def test_frames_may_be_cut_anywhere_and_come_out_as_they_went_in(
    frames: list[tuple[Opcode, int, bool]], long: int, cuts: list[int], *, masked: bool
) -> None:
    key = KEY if masked else b""
    wire, expected = bytearray(), list[bytes | Ping | Pong | Closed]()
    for opcode, length, _ in [*frames, (Opcode.BINARY, long, True)]:
        payload = bytes(number * 7 & 0xFF for number in range(length))
        wire += whole(opcode, payload, key)
        if opcode is not Opcode.BINARY:
            expected.append(Ping(payload) if opcode is Opcode.PING else Pong(payload))
        elif expected and isinstance(expected[-1], bytes):
            expected[-1] += payload
        elif payload:
            expected.append(payload)
    edges = sorted({0, len(wire), *(cut for cut in cuts if cut < len(wire))})
    chunks = [bytes(wire[start:end]) for start, end in itertools.pairwise(edges)]
    assert read(FrameReader(masked=masked), chunks) == expected


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65_535, 65_536])
def test_the_websockets_library_reads_what_goes_out_and_is_read(length: int) -> None:
    payload = bytes(range(256)) * (length // 256) + bytes(range(length % 256))
    server = ServerProtocol(state=State.OPEN, max_size=None)
    server.receive_data(whole(Opcode.BINARY, payload, KEY))
    (frame,) = server.events_received()
    assert isinstance(frame, LibraryFrame)
    assert bytes(frame.data) == payload

    client = ClientProtocol(parse_uri("ws://x/"), state=State.OPEN, max_size=None)
    client.send_binary(payload)
    assert read(FrameReader(masked=True), client.data_to_send()) == ([payload] if payload else [])


def test_fragments_of_a_message_come_out_in_order_and_control_frames_pass_between_them() -> None:
    first, last = bytearray(whole(Opcode.BINARY, b"one ")), whole(Opcode.CONTINUATION, b"two")
    first[0] &= 0x7F
    wire = bytes(first) + whole(Opcode.PING, b"?") + last + whole(Opcode.BINARY, b"three")
    assert read(FrameReader(masked=False), [wire]) == [b"one ", Ping(b"?"), b"twothree"]


def test_a_close_says_its_code_and_reason_and_one_that_is_too_long_is_cut_at_a_character() -> None:
    reason = "ä" * 100
    cut = close_payload(1001, reason)
    assert len(cut) <= CONTROL_BYTES
    reader = FrameReader(masked=False)
    assert read(reader, [whole(Opcode.CLOSE, cut)]) == [Closed(1001, "ä" * 61)]
    assert read(FrameReader(masked=False), [whole(Opcode.CLOSE, b"")]) == [Closed(CloseCode.NO_STATUS, "")]


BROKEN = {
    "reserved bits": (b"\xc2\x80" + KEY, CloseCode.PROTOCOL_ERROR, "reserved bits"),
    "an unknown kind": (b"\x83\x80" + KEY, CloseCode.PROTOCOL_ERROR, "unknown kind 3"),
    "no mask from a client": (whole(Opcode.BINARY, b"x"), CloseCode.PROTOCOL_ERROR, "not masked"),
    "a text message": (b"\x81\x80" + KEY, CloseCode.UNSUPPORTED_DATA, "text message"),
    "a long ping": (frame_head(Opcode.PING, 126, KEY), CloseCode.PROTOCOL_ERROR, "PING of 126 bytes"),
    "a ping in fragments": (b"\x09\x80" + KEY, CloseCode.PROTOCOL_ERROR, "fragments"),
    "nothing to continue": (b"\x80\x80" + KEY, CloseCode.PROTOCOL_ERROR, "nothing to continue"),
    "a message in a message": (b"\x02\x80" + KEY + b"\x82\x80" + KEY, CloseCode.PROTOCOL_ERROR, "inside"),
    "a message past the bound": (
        b"\x82\xff" + struct.pack(">Q", MESSAGE_BYTES + 1) + KEY,
        CloseCode.TOO_BIG,
        f"at most {MESSAGE_BYTES}",
    ),
    "a close of one byte": (whole(Opcode.CLOSE, b"x", KEY), CloseCode.PROTOCOL_ERROR, "one byte"),
}


@pytest.mark.parametrize(("wire", "code", "words"), BROKEN.values(), ids=BROKEN)
def test_every_breach_of_the_framing_has_its_code_and_its_words(
    wire: bytes, code: CloseCode, words: str
) -> None:
    with pytest.raises(FramingError, match=words) as caught:
        read(FrameReader(masked=True), [wire])
    assert caught.value.code == code


def test_a_server_that_masks_breaks_the_framing_too() -> None:
    with pytest.raises(FramingError, match="not unmasked"):
        read(FrameReader(masked=False), [whole(Opcode.BINARY, b"x", KEY)])


def test_a_message_at_the_bound_is_none() -> None:
    reader = FrameReader(masked=False)
    assert read(reader, [frame_head(Opcode.BINARY, MESSAGE_BYTES), b"x"]) == [b"x"]


def fragment(opcode: Opcode, payload: bytes) -> bytes:
    """One that another follows."""
    frame = bytearray(whole(opcode, payload, KEY))
    frame[0] &= 0x7F
    return bytes(frame)


def test_fragments_count_together_and_the_next_message_begins_anew() -> None:
    reader = FrameReader(masked=True)
    half = bytes(MESSAGE_BYTES // 2)
    message = [fragment(Opcode.BINARY, half), whole(Opcode.CONTINUATION, half, KEY)]
    for _ in range(2):
        read(reader, message)  # the control: exactly the bound, twice
    read(reader, message[:1])
    with pytest.raises(FramingError, match="message of") as caught:
        read(reader, [fragment(Opcode.CONTINUATION, half), whole(Opcode.CONTINUATION, b"x", KEY)])
    assert caught.value.code == CloseCode.TOO_BIG


IDLE = {
    "empty continuations": fragment(Opcode.CONTINUATION, b""),
    "pings": whole(Opcode.PING, b"?", KEY),
    "pongs nobody asked for": whole(Opcode.PONG, b"", KEY),
}


@pytest.mark.holds("T-18")
@pytest.mark.parametrize("frame", IDLE.values(), ids=IDLE)
def test_frames_without_payload_have_a_budget_a_second(frame: bytes) -> None:
    reader = FrameReader(masked=True)
    read(reader, [fragment(Opcode.BINARY, b"a message begins")])
    for _ in range(
        2
    ):  # the control: as many again in the next second, payload beside them counts for nothing
        read(reader, [frame + fragment(Opcode.CONTINUATION, b"x")] * IDLE_FRAMES)
        reader.second_passed()
    read(reader, [frame] * IDLE_FRAMES)
    with pytest.raises(FramingError, match="without payload in a second") as caught:
        read(reader, [frame])
    assert caught.value.code == CloseCode.POLICY


@pytest.mark.parametrize("by", range(9))
def test_a_key_is_turned_to_where_the_piece_begins(by: int) -> None:
    payload = bytes(range(40))
    masked = opened(memoryview(payload), KEY)
    assert opened(memoryview(masked)[by:], turned(KEY, by)) == payload[by:]
