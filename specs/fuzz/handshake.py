"""The first bytes of a stream under arbitrary ones: a request, a reply or a relay frame is read or refused by name."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec
from hypothesis import strategies as st
from specs.fuzz.cuts import pieces, ways

from inference_fleet.route.relay_frame import RelayInvalid, RelayRequest
from inference_fleet.settings import Deadline, Timings
from inference_fleet.tunnel.errors import HandshakeBroken
from inference_fleet.tunnel.frames import FrameMalformed, read_frame
from inference_fleet.tunnel.handshake import StreamRequest, read_reply
from inference_fleet.tunnel.refusals import StreamRefused
from inference_fleet.tunnel.stream import Stream

if TYPE_CHECKING:
    from inference_fleet.tunnel.notices import ResetCause

_TIMINGS: Final = Timings.drill()
_SINGLY: Final = 64
"""So many bytes come one by one: past the length and into the first fields."""
_PEER: Final = "frontend-1"
_VALUE: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**63),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=12),
    st.sampled_from(["http", "backend", "127.0.0.1:20051", "worker-0", _PEER]),
    st.lists(st.integers(0, 3), max_size=3),
)
_REQUEST: Final = st.dictionaries(
    st.sampled_from(["v", "tag", "target", "process_key", "node", "epoch", "budget_ms", "traceparent", "x"]),
    _VALUE,
    max_size=9,
)
_GOOD: Final = st.fixed_dictionaries(
    {"tag": st.sampled_from(["http", "backend"]), "node": st.just("worker-0"), "epoch": st.integers(0, 9)},
    optional={"v": st.integers(0, 2), "budget_ms": st.integers(0, 9), "target": st.text(max_size=330)},
)
_RELAY: Final = st.fixed_dictionaries(
    {
        "v": st.one_of(st.just(1), _VALUE),
        "relay": st.one_of(st.just({"from": _PEER, "hop": 1}), _VALUE),
        "request": st.one_of(_REQUEST, _GOOD),
    }
)
_REPLY: Final = st.dictionaries(st.sampled_from(["ok", "code", "message", "x"]), _VALUE, max_size=4)
_JSON: Final = st.one_of(_REQUEST, _GOOD, _RELAY, _REPLY).map(msgspec.json.encode)
_DEEP: Final = st.integers(1, 2000).map(lambda depth: b'{"relay":' + b"[" * depth)
STRATEGY: Final = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(["request", "reply", "relay"]),
        "payload": st.one_of(_JSON, _JSON, _DEEP, st.binary(max_size=80)),
        "length": st.one_of(st.none(), st.none(), st.integers(0, 5000), st.integers(0, 2**32 - 1)),
        "cuts": st.lists(st.integers(0, 4000), max_size=6),
    }
)


def play(case: dict[str, Any]) -> None:
    """Raises on anything that is not a documented refusal, and where two cuts of the same bytes differ."""
    payload, length = case["payload"], case["length"]
    wire = (len(payload) if length is None else length).to_bytes(4, "big") + payload
    read = asyncio.run(_read_all(case["kind"], wire, case["cuts"]))
    for other in read[1:]:
        assert other == read[0], f"the same bytes, cut otherwise, were read as {other} and not {read[0]}"


async def _read_all(kind: str, wire: bytes, cuts: list[int]) -> list[str]:
    return [await _read(kind, wire, way) for way in ways(cuts, min(len(wire), _SINGLY))]


async def _read(kind: str, wire: bytes, cuts: Any) -> str:
    stream = Stream(_Alone(), 1, asyncio.get_running_loop())
    reading = asyncio.create_task(_understand(kind, stream))
    for piece in pieces(wire, cuts):
        stream.deliver(piece)
        await asyncio.sleep(0)
    stream.peer_finished()
    return await reading


async def _understand(kind: str, stream: Stream) -> str:
    deadline = Deadline.after(_TIMINGS.session_ttl_s)  # no example is judged by the clock
    try:
        if kind == "reply":
            await read_reply(stream, deadline=deadline)
            return "yes"
        payload = await read_frame(stream, deadline=deadline)
        if kind == "relay":
            return repr(RelayRequest.decode(payload, peer=_PEER))
        request = StreamRequest.decode(payload)
    except (FrameMalformed, HandshakeBroken, RelayInvalid, StreamRefused) as refused:
        return f"{type(refused).__name__}: {refused}"
    try:
        again = StreamRequest.decode(request.encode())
    except FrameMalformed as too_long:
        return str(too_long)
    assert again == request, "what was read is not what would be written"
    return repr(request)


class _Alone:
    """The session of a stream that has none."""

    timings = _TIMINGS

    def stream_accepted(self, stream: Stream) -> None:
        del stream

    def stream_room(self, stream: Stream) -> int:
        del stream
        return 2**32

    def stream_overflows(self, stream: Stream) -> None:
        raise AssertionError(f"stream {stream.id} has room without end")

    def stream_wrote(self, stream: Stream, length: int) -> None:
        del stream, length

    def stream_finished(self, stream: Stream) -> None:
        del stream

    def stream_reset(self, stream: Stream, cause: ResetCause) -> None:
        del stream, cause

    def stream_consumed(self, stream: Stream, length: int) -> None:
        del stream, length

    def stream_dropped(self, stream: Stream, unsent: int) -> None:
        del stream, unsent

    def stream_credit(self, stream: Stream) -> int:
        del stream
        return 2**32
