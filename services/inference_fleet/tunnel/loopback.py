"""Connections to processes on the worker's own loopback, held still until somebody takes them over."""

from __future__ import annotations

import asyncio

from inference_fleet.tunnel.local import LocalTransport, begin_connect


class Parked(asyncio.Protocol):
    """Holds the place until the splice begins. Nothing is read meanwhile: that is how a `LocalTransport` begins."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.lost: tuple[Exception | None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Of a `LocalTransport`, which reads once it is told to."""
        assert isinstance(transport, LocalTransport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Remembered with its error."""
        self.lost = (exc,)

    def release(self, successor: asyncio.Protocol) -> None:
        """Let `successor` have the transport, which reads from now on, or tell it that there is none any more."""
        transport = self.transport
        assert transport is not None, "connected before it is released"
        transport.set_protocol(successor)
        if self.lost is not None:
            successor.connection_lost(*self.lost)
        else:
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
