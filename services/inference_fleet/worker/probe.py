"""Whether a model process answers: one small HTTP request on loopback, bounded, no client library needed."""

from __future__ import annotations

import asyncio
import re

from inference_fleet.settings.loopback import LOOPBACK

_STATUS = re.compile(rb"HTTP/1\.[01] (?P<status>[1-5][0-9]{2})\b")
_LINE_LIMIT = 1024


async def status_of(port: int, path: str, *, within_s: float) -> int | None:
    """The HTTP status `GET path` gets, or None when nothing answers HTTP there in time."""
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_connection(LOOPBACK, port, limit=_LINE_LIMIT)
            try:
                writer.write(
                    f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nConnection: close\r\n\r\n".encode()
                )
                line = await reader.readline()
            finally:
                writer.transport.abort()
    except (OSError, ValueError):
        return None  # refused, cut, too slow (TimeoutError), or a first line without an end
    found = _STATUS.match(line)
    return int(found["status"]) if found else None
