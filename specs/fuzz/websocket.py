"""The WebSocket shell under arbitrary bytes: the framing alone, and a whole session over a transport that is none."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st
from specs.fuzz.cuts import pieces, ways
from specs.fuzz.frames import FRAMES, raw_of

from inference_fleet.settings import Timings
from inference_fleet.tunnel import DirectWebSocket, Session
from inference_fleet.tunnel.websocket import (
    CONTROL_BYTES,
    Closed,
    FrameReader,
    FramingError,
    Opcode,
    Piece,
    frame_head,
    opened,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from inference_fleet.tunnel import Stream

_NEVER_S: Final = Timings().session_ttl_s
_TIMINGS: Final = replace(
    Timings(),
    keepalive_interval_s=_NEVER_S,
    keepalive_timeout_s=_NEVER_S,
    write_stall_s=_NEVER_S,
    stream_linger_s=_NEVER_S,
)
"""No example is judged by the clock: a machine that stands still ends nothing."""
_TURNS: Final = 500
_FRAME: Final = st.tuples(
    st.just("frame"),
    st.sampled_from([0, 2, 2, 2, 8, 9, 10, 1, 5]),
    st.booleans(),
    st.one_of(FRAMES, st.binary(max_size=130)),
    st.binary(min_size=4, max_size=4),
)
STRATEGY: Final = st.fixed_dictionaries(
    {
        "masked": st.booleans(),
        "session": st.booleans(),
        "steps": st.lists(
            st.one_of(_FRAME, _FRAME, _FRAME, st.tuples(st.just("bytes"), st.binary(max_size=30))), max_size=8
        ),
        "cuts": st.lists(st.integers(0, 4000), max_size=8),
    }
)


def play(case: dict[str, Any]) -> None:
    """Raises on anything that is not a documented ending, and where two cuts of the same bytes differ."""
    wire = b"".join(_wire(step, masked=case["masked"]) for step in case["steps"])
    told = [_read(pieces(wire, cuts), masked=case["masked"]) for cuts in ways(case["cuts"], len(wire))]
    for other in told[1:]:
        assert other == told[0], f"the same bytes, cut otherwise, told\n{other}\nand not\n{told[0]}"
    if case["session"]:
        ends = [
            asyncio.run(_live(pieces(wire, cuts), masked=case["masked"]))
            for cuts in ways(case["cuts"], len(wire))
        ]
        for end in ends[1:]:
            assert end == ends[0], f"the same bytes, cut otherwise, ended as\n{end}\nand not\n{ends[0]}"


def _wire(step: tuple[Any, ...], *, masked: bool) -> bytes:
    if step[0] == "bytes":
        return bytes(step[1])
    _, opcode, final, said, key = step
    payload = said if isinstance(said, bytes) else b"".join(raw_of(frame) for frame in said)
    key = key if masked else b""
    head = bytearray(frame_head(Opcode.BINARY, len(payload), key))
    head[0] = (0x80 if final else 0) | opcode
    return bytes(head) + opened(memoryview(payload), key)


def _read(chunks: Iterable[bytes], *, masked: bool) -> list[Any]:
    reader, told, payload = FrameReader(masked=masked), list[Any](), 0
    try:
        for chunk in chunks:
            for one in reader.receive(memoryview(chunk)):
                if isinstance(one, Piece):
                    payload += len(one.data)
                    data = opened(one.data, one.key)
                    if told and isinstance(told[-1], bytes):
                        told[-1] += data
                    else:
                        told.append(data)
                else:
                    told.append(one)
                    said = one.reason if isinstance(one, Closed) else one.payload
                    assert len(said) <= CONTROL_BYTES
    except FramingError as error:
        told.append(("broken", int(error.code), str(error)))
    return told


async def _live(chunks: Iterable[bytes], *, masked: bool) -> tuple[Any, ...]:
    """A session that hears all of it at once and then loses its connection: how it ended, and what its streams got."""
    transport = _NoTransport()
    carrier = DirectWebSocket(transport, client=not masked, path="fuzz", stall_s=_TIMINGS.write_stall_s)
    got: dict[int, bytearray] = {}

    async def keep(stream: Stream) -> None:
        keeper = _Keeper(got.setdefault(stream.id, bytearray()))
        stream.set_protocol(keeper)
        await keeper.over.wait()

    session = Session(carrier, client=not masked, timings=_TIMINGS, on_stream=keep, name="fuzz")
    running = asyncio.create_task(session.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for chunk in chunks:
        view = memoryview(chunk)
        while view and not transport.is_closing():
            buffer = carrier.get_buffer(-1)
            length = min(len(buffer), len(view))
            buffer[:length] = view[:length]
            carrier.buffer_updated(length)
            view = view[length:]
    for turn in range(_TURNS):
        if running.done():
            break
        if turn == _TURNS // 2:
            transport.lose()
        await asyncio.sleep(0)
    assert running.done(), f"the session is not over after {_TURNS} turns of the loop"
    return running.result(), {stream: bytes(data) for stream, data in got.items()}, transport.goodbye


class _Keeper(asyncio.Protocol):
    def __init__(self, got: bytearray) -> None:
        self._got = got
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._got += data

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.over.set()


class _NoTransport(asyncio.Transport):
    """Takes everything, and is lost once a goodbye was said on it: a peer that answers at once."""

    def __init__(self) -> None:
        super().__init__()
        self.goodbye = b""
        self._protocol: asyncio.BaseProtocol | None = None
        self._closing = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        del high, low

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if data[0] & 0x0F == Opcode.CLOSE and not self.goodbye:
            head = 6 if data[1] & 0x80 else 2
            key = bytes(data[2:head])
            self.goodbye = opened(memoryview(bytes(data))[head:], key)
            self.lose()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.lose()

    def abort(self) -> None:
        self.lose()

    def lose(self) -> None:
        if not self._closing:
            self._closing = True
            assert self._protocol is not None
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
