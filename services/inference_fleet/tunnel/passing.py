"""Bytes that are passed on at once need no copy: who may be given a view, and what becomes of a view that has to wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections import deque

SMALL_BYTES: Final = 4096
"""What is shorter is put together with what waits already."""


class Passing(asyncio.Protocol):
    """Its `data_received` keeps nothing of what it is given, which may then be a view of a buffer that is reused."""

    __slots__ = ()


def own(waiting: deque[memoryview | bytearray] | None) -> None:
    """Copy what waits of a caller's buffer; whatever was written before is owned already."""
    if waiting is None:
        return
    for at in range(len(waiting) - 1, -1, -1):
        piece = waiting[at]
        if isinstance(piece, bytearray):
            continue  # ours, and perhaps written after it by whoever was told that there is room again
        if isinstance(piece.obj, bytes):
            return
        waiting[at] = memoryview(bytes(piece))


def put_together(waiting: deque[memoryview | bytearray], data: bytes | bytearray | memoryview) -> None:
    """Copy few bytes to the end of what waits: kept one by one, bytes cost a hundred times what they are."""
    last = waiting[-1] if waiting else None
    if isinstance(last, bytearray) and len(last) + len(data) <= SMALL_BYTES:
        last += data
    else:
        waiting.append(bytearray(data))


def fill(protocol: asyncio.BufferedProtocol, data: bytes | memoryview) -> None:
    """Give data to a protocol that has buffers of its own."""
    view = memoryview(data)
    while view:
        buffer = memoryview(protocol.get_buffer(len(view)))
        length = min(len(buffer), len(view))
        buffer[:length] = view[:length]
        view = view[length:]
        protocol.buffer_updated(length)
