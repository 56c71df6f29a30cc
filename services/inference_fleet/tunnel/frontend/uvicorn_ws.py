"""uvicorn's WebSocket protocol with what ASGI itself does not have: dropping the transport, and giving it away.

Give one of these to `uvicorn.Config(ws=...)`. With either a session whose peer is gone closes the transport at once
instead of leaving it to the kernel's time-outs; with `TakeoverWebSocketProtocol` a route that has accepted may also
have the transport for itself, so that no byte of a tunnel passes ASGI.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    from websockets.http11 import Request

ABORT_EXTENSION = "blackstart.abort"
TAKEOVER_EXTENSION = "blackstart.takeover"


class AbortableWebSocketProtocol(WebSocketsSansIOProtocol):
    """Adds `scope["extensions"]["blackstart.abort"]`, a callable that drops the connection."""

    def handle_connect(self, event: Request) -> None:
        """The handshake has been read: the route's task exists and has not run yet."""
        super().handle_connect(event)
        self.extend(ABORT_EXTENSION, self.transport.abort)

    def extend(self, name: str, offered: object) -> None:
        """Offer something to the route; a handshake that was refused already has no scope."""
        scope = cast("dict[str, Any] | None", getattr(self, "scope", None))
        if scope is not None:
            scope["extensions"][name] = offered


class TakeoverWebSocketProtocol(AbortableWebSocketProtocol):
    """Adds `scope["extensions"]["blackstart.takeover"]`: gives the transport of an accepted connection, once and for good.

    From then on the connection is in none of the server's books, the route may return, and its end closes nothing.
    None where there is nothing to give: not accepted, closing, or a peer that spoke before it was answered, whose
    words uvicorn has begun to read.
    """

    _spoke_early = False

    def handle_connect(self, event: Request) -> None:
        """As above."""
        super().handle_connect(event)
        self.extend(TAKEOVER_EXTENSION, self.give_away)

    def data_received(self, data: bytes) -> None:
        """Bytes after the handshake's own, while uvicorn still has the connection."""
        self._spoke_early = self._spoke_early or self.handshake_initiated
        super().data_received(data)

    def give_away(self) -> asyncio.Transport | None:
        """The transport, or None."""
        transport = self.transport
        if self._spoke_early or not self.handshake_complete or self.close_sent or transport.is_closing():
            return None
        self.stop_keepalive()
        self.connections.discard(self)
        self.disconnected = True
        self.transport = _GivenAway()
        return transport


class _GivenAway(asyncio.Transport):
    """Stands where the transport was: what uvicorn still does at the end of a route does nothing."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        return

    def abort(self) -> None:
        return

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return

    def write(self, data: bytes | bytearray | memoryview) -> None:
        del data
