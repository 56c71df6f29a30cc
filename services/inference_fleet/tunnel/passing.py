"""Bytes that are passed on at once need no copy: who may be given a view, and what becomes of a view that has to wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import deque


class Passing(asyncio.Protocol):
    """Its `data_received` keeps nothing of what it is given, which may then be a view of a buffer that is reused."""

    __slots__ = ()


def own(waiting: deque[memoryview] | None) -> None:
    """Copy what waits of a caller's buffer; whatever was written before is owned already."""
    if waiting is None:
        return
    for at in range(len(waiting) - 1, -1, -1):
        if isinstance(waiting[at].obj, bytes):
            return
        waiting[at] = memoryview(bytes(waiting[at]))


def fill(protocol: asyncio.BufferedProtocol, data: bytes | memoryview) -> None:
    """Give data to a protocol that has buffers of its own."""
    view = memoryview(data)
    while view:
        buffer = memoryview(protocol.get_buffer(len(view)))
        length = min(len(buffer), len(view))
        buffer[:length] = view[:length]
        view = view[length:]
        protocol.buffer_updated(length)
