"""uvicorn's WebSocket protocol with a way to drop the transport, which ASGI itself does not have.

Give it to `uvicorn.Config(ws=AbortableWebSocketProtocol)`: a session whose peer is gone can then close the
transport at once, instead of leaving a half-open connection to the kernel's time-outs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    from websockets.http11 import Request

ABORT_EXTENSION = "blackstart.abort"


class AbortableWebSocketProtocol(WebSocketsSansIOProtocol):
    """Adds `scope["extensions"]["blackstart.abort"]`, a callable that drops the connection."""

    def handle_connect(self, event: Request) -> None:
        """The handshake has been read: the route's task exists and has not run yet."""
        super().handle_connect(event)
        scope = cast("dict[str, Any] | None", getattr(self, "scope", None))
        if scope is not None:
            scope["extensions"][ABORT_EXTENSION] = self.transport.abort
