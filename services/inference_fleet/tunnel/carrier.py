"""What a session needs of a connection: its bytes both ways, and two ways to end it.

Two kinds: a `Carrier` is asked for each message and awaited for each write, which any WebSocket library can do; a
`DirectCarrier` sits on the transport itself and calls the session, so that no queue and no task stands in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence


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


class Receiver(Protocol):
    """What a direct carrier tells its session; none of these raises."""

    def heard(self) -> None:
        """A read brought bytes, whatever they are; what they say is told next."""

    def received(self, data: memoryview, key: bytes) -> None:
        """Bytes came; `key` opens them (see `websocket.opened`). The view is valid during this call only."""

    def received_all(self) -> None:
        """All that one read brought was told: answers may go out together."""

    def writable(self) -> None:
        """The transport takes bytes again."""

    def carrier_lost(self, why: Exception | None) -> None:
        """Nothing comes and nothing goes any more; None after an orderly end."""


@runtime_checkable
class DirectCarrier(Protocol):
    """A connection whose bytes are told as they come. Everything happens on its event loop, in its callbacks."""

    path: str
    can_write: bool
    """Whether the transport's buffer is below its high water; what is written anyway is kept."""

    def attach(self, receiver: Receiver) -> None:
        """Begin to tell. Once."""

    def write(self, parts: Sequence[bytes | memoryview]) -> None:
        """One message of all parts, which are not changed afterwards."""

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Say goodbye and close; returns once the connection is gone."""

    def abort(self) -> None:
        """Drop the connection now, in whatever state it is."""
