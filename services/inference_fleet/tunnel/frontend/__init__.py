"""The frontend's side of the tunnel: accepted WebSockets as carriers."""

from inference_fleet.tunnel.frontend.asgi import AsgiCarrier

__all__ = ["AsgiCarrier"]
