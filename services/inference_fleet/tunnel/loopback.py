"""Connections to processes on the worker's own loopback, held still until somebody takes them over."""

from __future__ import annotations

import asyncio

from inference_fleet.tunnel.local import LocalTransport, begin_connect


class Parked(asyncio.Protocol):
    """Keeps what a service says before the splice begins: some speak first."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.kept: list[bytes] = []
        self.ended = False
        self.lost: Exception | None = None
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hold still."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """What was read before the pause took effect."""
        self.kept.append(data)
        if self.transport is not None and self.transport.is_reading():
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        """Remembered; the other direction stays open."""
        self.ended = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Remembered with its error."""
        self.is_lost = True
        self.lost = exc

    def release(self, successor: asyncio.Protocol) -> None:
        """Give everything kept to `successor`, in order, and let the transport read on."""
        transport = self.transport
        assert transport is not None, "connected before it is released"
        transport.set_protocol(successor)
        for chunk in self.kept:
            successor.data_received(chunk)
        if self.is_lost:
            successor.connection_lost(self.lost)
        elif self.ended:
            successor.eof_received()
        if not transport.is_closing():
            transport.resume_reading()


async def connect_loopback(host: str, port: int, *, within_s: float) -> asyncio.Transport:
    """A parked TCP connection; raises what the connect raised, `TimeoutError` when `within_s` ran out.

    `host` is an address, not a name. Here the kernel mostly has the connection ready before one could wait for it.
    """
    if within_s <= 0:
        raise TimeoutError(f"no time was left to connect to {host}:{port}")
    sock, ready = begin_connect(host, port)
    if not ready:
        try:
            async with asyncio.timeout(within_s):
                await asyncio.get_running_loop().sock_connect(sock, (host, port))
        except BaseException:
            sock.close()
            raise
    return LocalTransport(sock, Parked())
