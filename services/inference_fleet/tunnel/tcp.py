"""A plain TCP connection as a carrier: for foreign yamux peers and for specs."""

from __future__ import annotations

import asyncio
import contextlib

_READ_BYTES = 64 * 1024


class TcpCarrier:
    """Bytes of one TCP connection."""

    path = "tcp"

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._reading = asyncio.Lock()

    async def receive(self) -> bytes | None:
        """Whatever came in; None at the end of file."""
        async with self._reading:
            return await self._reader.read(_READ_BYTES) or None

    async def send(self, data: bytes) -> None:
        """Write and wait for room."""
        self._writer.write(data)
        await self._writer.drain()

    async def close(self, code: int = 1000, reason: str = "") -> None:  # noqa: ARG002  # TCP has no goodbye words
        """Flush, end our direction and hear the peer out.

        TCP has no closing handshake: a connection closed at once answers what the peer still sends, and be it a window
        update, with a reset that can cost the peer the last it has not read yet.
        """
        with contextlib.suppress(ConnectionError):
            self._writer.write_eof()
            while await self.receive() is not None:
                pass
        self._writer.close()
        await self._writer.wait_closed()

    def abort(self) -> None:
        """Drop the connection."""
        self._writer.transport.abort()
