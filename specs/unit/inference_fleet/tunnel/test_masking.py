from __future__ import annotations

import asyncio

import pytest

from inference_fleet.tunnel.direct import DirectWebSocket
from inference_fleet.tunnel.websocket import FrameReader, Piece, opened

from .linked import TIMINGS


class _Written(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.data = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.data += data

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...
    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...


@pytest.mark.parametrize("length", [1, 125, 126, 4095, 4096, 65535, 65536, 200_001])
def test_whatever_its_length_a_masked_message_is_read_as_it_was_written(length: int) -> None:
    async def story() -> None:
        transport = _Written()
        carrier = DirectWebSocket(transport, client=True, path="client", stall_s=TIMINGS.write_stall_s)
        content = bytes(at * 7 % 251 for at in range(length))
        carrier.write([content[: length // 3], memoryview(content)[length // 3 :]])
        told = list(FrameReader(masked=True).receive(memoryview(transport.data)))
        pieces = [piece for piece in told if isinstance(piece, Piece)]
        assert b"".join(opened(piece.data, piece.key) for piece in pieces) == content, "it came changed"
        if length > 125:
            assert content not in transport.data, "it was not masked"

    asyncio.run(story())
