"""An accepted WebSocket as a carrier through plain ASGI messages: works under any server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.websockets import WebSocketDisconnect, WebSocketState

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

_UNSUPPORTED_DATA = 1003


class AsgiCarrier:
    """Binary messages of a Starlette WebSocket that its route has authenticated and accepted.

    ASGI has no way to drop a transport, so `abort` asks the server for its own where the server offers it
    (`AbortableWebSocketProtocol` of `frontend.uvicorn_ws`) and otherwise only ends the session: the
    route returns and the server closes.
    """

    path = "asgi"

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket

    async def receive(self) -> bytes | None:
        """The next binary message; a text message ends the connection, since no peer of ours sends one."""
        if self._websocket.client_state is WebSocketState.DISCONNECTED:
            return None
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        data = message.get("bytes")
        if data is None:
            await self.close(_UNSUPPORTED_DATA, "text message")
            return None
        return bytes(data)

    async def send(self, data: bytes) -> None:
        """One binary message; waits while the server's write buffer is full."""
        try:
            await self._websocket.send_bytes(data)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise ConnectionResetError(f"the WebSocket is closed: {error!r}") from None

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """A close frame, once; nothing when the peer was first."""
        try:
            await self._websocket.close(code, reason[:100])
        except (WebSocketDisconnect, RuntimeError):
            return  # the peer closed first

    def abort(self) -> None:
        """Drop the transport where the server lets us."""
        drop = (self._websocket.scope.get("extensions") or {}).get("blackstart.abort")
        if callable(drop):
            drop()
