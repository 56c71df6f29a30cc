"""The frontend's side of the tunnel: accepted WebSockets as carriers."""

from inference_fleet.tunnel.frontend.accepted import carrier_of
from inference_fleet.tunnel.frontend.asgi import AsgiCarrier
from inference_fleet.tunnel.frontend.uvicorn_ws import AbortableWebSocketProtocol, TakeoverWebSocketProtocol

__all__ = ["AbortableWebSocketProtocol", "AsgiCarrier", "TakeoverWebSocketProtocol", "carrier_of"]
