"""A direct carrier that is asked and awaited instead of telling: for specs that play a peer and say anything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from inference_fleet.tunnel.websocket import opened

if TYPE_CHECKING:
    from inference_fleet.tunnel import DirectCarrier


class Awaited:
    """Wraps a carrier that no session has yet."""

    def __init__(self, carrier: DirectCarrier) -> None:
        self.carrier = carrier
        self.why: Exception | None = None
        self._told: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = asyncio.Event()
        carrier.attach(self)

    def heard(self) -> None:
        return

    def received(self, data: memoryview, key: bytes) -> None:
        self._told.put_nowait(opened(data, key))

    def received_all(self) -> None:
        return

    def writable(self) -> None:
        self._room.set()

    def carrier_lost(self, why: Exception | None) -> None:
        self.why = why
        self._room.set()
        self._told.put_nowait(None)

    async def receive(self) -> bytes | None:
        """The next piece; None at the end, again and again."""
        piece = await self._told.get()
        if piece is None:
            self._told.put_nowait(None)
        return piece

    async def send(self, data: bytes) -> None:
        """One message; waits while the transport is full."""
        if self.carrier.can_write:
            self._room.clear()
        self.carrier.write([data])
        if not self.carrier.can_write:
            await self._room.wait()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        await self.carrier.close(code, reason)

    def abort(self) -> None:
        self.carrier.abort()
