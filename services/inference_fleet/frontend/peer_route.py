"""The link another replica dials: its token is checked before the upgrade, then it may ask for relays."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.routing import WebSocketRoute

from inference_fleet.auth import PeerRefused
from inference_fleet.frontend import gate
from inference_fleet.frontend.errors import ApiError
from inference_fleet.frontend.handshakes import admit, deny, handshake
from inference_fleet.frontend.peer_dial import PATH, SUBPROTOCOL
from inference_fleet.telemetry.logs import bound
from inference_fleet.tunnel.frontend import AsgiCarrier

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

_log = logging.getLogger(__name__)


async def peer(websocket: WebSocket) -> None:
    """`GET /api/cluster/peer`: 401 as a plain answer for whoever shows no valid token made for this replica."""
    replica = gate.replica_of(websocket)
    refused: ApiError
    try:
        async with handshake(replica):
            origin = _origin(websocket)
            admit(websocket, replica, SUBPROTOCOL)
            await websocket.accept(SUBPROTOCOL)
    except ApiError as error:
        refused = error
    else:
        with bound(peer=origin):
            ending = await replica.peer_server.serve(AsgiCarrier(websocket), peer=origin)
            _log.info("peer link ended: %s", ending.cause)
        return
    await deny(websocket, refused)


def _origin(websocket: WebSocket) -> str:
    replica = gate.replica_of(websocket)
    try:
        return replica.tokens.check(gate.authorization(websocket), now=replica.clock.now())
    except PeerRefused as error:
        _log.warning("refused a peer link from %s: %s", gate.client_of(websocket), error)
    raise ApiError("unauthorized", "this is no token of a replica of this cluster for this replica")


ROUTES = [WebSocketRoute(PATH, peer)]
