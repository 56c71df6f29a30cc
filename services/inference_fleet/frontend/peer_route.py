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
from inference_fleet.tunnel.frontend import AsgiCarrier, carrier_of

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from inference_fleet.frontend.replica import Replica
    from inference_fleet.tunnel import Carrier, DirectCarrier

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
            carrier = carrier_of(websocket, stall_s=replica.settings.timings.write_stall_s)
    except ApiError as error:
        refused = error
    else:
        with bound(peer=origin):
            serving = _serve(replica, carrier, origin)
            if isinstance(carrier, AsgiCarrier):
                await serving
            else:
                replica.adopted.start(serving, name=f"peer link of {origin}")
        return
    await deny(websocket, refused)


async def _serve(replica: Replica, carrier: Carrier | DirectCarrier, origin: str) -> None:
    ending = await replica.peer_server.serve(carrier, peer=origin)
    _log.info("peer link ended: %s", ending.cause)


def _origin(websocket: WebSocket) -> str:
    replica = gate.replica_of(websocket)
    try:
        return replica.tokens.check(gate.authorization(websocket), now=replica.clock.now())
    except PeerRefused as error:
        _log.warning("refused a peer link from %s: %s", gate.client_of(websocket), error)
    raise ApiError(
        "unauthorized",
        "the bearer shown is no token of a replica of this cluster for this replica"
        "; try: the same BLACKSTART_CLUSTER_SECRET on every replica",
    )


ROUTES = [WebSocketRoute(PATH, peer)]
