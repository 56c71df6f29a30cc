"""Length-prefixed frames inside a stream: u32 big-endian length, then that many bytes, with a cap."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

from inference_fleet.tunnel.errors import HandshakeBroken

if TYPE_CHECKING:
    from inference_fleet.settings import Deadline
    from inference_fleet.tunnel.stream import Stream

FRAME_LIMIT: Final = 4096
_LENGTH = struct.Struct(">I")


class FrameMalformed(ValueError):
    """A frame that breaks its own form: empty, over the cap, or not what it should contain."""


def write_frame(stream: Stream, payload: bytes, *, limit: int = FRAME_LIMIT) -> None:
    """Queue one frame."""
    if not 0 < len(payload) <= limit:
        raise _misfit(len(payload), limit)
    stream.write(_LENGTH.pack(len(payload)) + payload)


async def read_frame(stream: Stream, *, limit: int = FRAME_LIMIT, deadline: Deadline) -> bytes:
    """The next frame of a stream that has no protocol yet. A stream of the peer is half-open until it has brought one.

    Raises `FrameMalformed` (from the length alone: nothing past the cap is read), `HandshakeBroken` when the
    stream ends first, the stream's own error, or `DeadlineExpired`.
    """
    try:
        (length,) = _LENGTH.unpack(await stream.read_exactly(_LENGTH.size, deadline=deadline))
        if not 0 < length <= limit:
            raise _misfit(length, limit)
        payload = await stream.read_exactly(length, deadline=deadline)
    except asyncio.IncompleteReadError as error:
        raise HandshakeBroken(
            f"the stream ended after {len(error.partial)} of {error.expected} bytes of a frame"
        ) from None
    stream.accept()
    return payload


def _misfit(length: int, limit: int) -> FrameMalformed:
    return FrameMalformed(f"a frame of {length} bytes; try: one of 1 to {limit}")
