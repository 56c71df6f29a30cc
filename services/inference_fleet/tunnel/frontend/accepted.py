"""The fastest carrier the server offers for a WebSocket that a route has accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_fleet.tunnel.direct import DirectWebSocket
from inference_fleet.tunnel.frontend.asgi import AsgiCarrier
from inference_fleet.tunnel.frontend.uvicorn_ws import TAKEOVER_EXTENSION

if TYPE_CHECKING:
    from starlette.websockets import WebSocket


def carrier_of(websocket: WebSocket, *, stall_s: float) -> AsgiCarrier | DirectWebSocket:
    """Call it right after `accept`, with nothing awaited in between. `stall_s` bounds a peer that does not read."""
    give_away = (websocket.scope.get("extensions") or {}).get(TAKEOVER_EXTENSION)
    transport = give_away() if callable(give_away) else None
    if transport is None:
        return AsgiCarrier(websocket)
    return DirectWebSocket(transport, client=False, path="takeover", stall_s=stall_s)
