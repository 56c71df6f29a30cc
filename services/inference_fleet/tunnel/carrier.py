"""What a session needs of a connection: its bytes both ways, and two ways to end it."""

from __future__ import annotations

from typing import Protocol


class Carrier(Protocol):
    """The bytes of one WebSocket (or other) connection. Message boundaries mean nothing.

    `path` is a metric label: `asgi` on the accepting side, `client` on the dialling one.
    """

    path: str

    async def receive(self) -> bytes | None:
        """The next message; None once the connection is closed or at its end."""

    async def send(self, data: bytes) -> None:
        """Hand over bytes; waits while the connection's own buffer is full. `ConnectionError` once it is closed."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye in the connection's own way (a WebSocket close frame) and close."""

    def abort(self) -> None:
        """Drop the transport at once; a peer that is gone cannot hold it open."""
