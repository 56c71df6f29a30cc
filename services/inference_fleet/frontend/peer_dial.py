"""How this replica dials a peer: a WebSocket to the peer's advertised address, with a token made for that peer alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_fleet.auth import PeerRefused
from inference_fleet.route import NoRelayPath
from inference_fleet.tunnel import Session, dial_websocket

if TYPE_CHECKING:
    from inference_fleet.auth import PeerTokens
    from inference_fleet.cluster import Owner
    from inference_fleet.route import SharedClock
    from inference_fleet.settings import Deadline, Timings

SUBPROTOCOL = "blackstart.peer.v1"
PATH = "/api/cluster/peer"


class PeerDialer:
    """The `PeerDial` of a real replica."""

    def __init__(self, *, tokens: PeerTokens, clock: SharedClock, timings: Timings) -> None:
        self._tokens = tokens
        self._clock = clock
        self._timings = timings

    async def __call__(self, owner: Owner, *, deadline: Deadline) -> Session:
        """A session to the peer, past its upgrade; its frames are served by `run`."""
        del deadline  # the dial bounds itself with `handshake_s`, which is what the caller gives
        try:
            token = self._tokens.issue(owner.instance_id, now=self._clock.now())
        except PeerRefused as error:
            refused = NoRelayPath(owner.instance_id, str(error))
        else:
            carrier, _ = await dial_websocket(
                f"ws://{owner.address}{PATH}",
                subprotocol=SUBPROTOCOL,
                headers={"Authorization": f"Bearer {token}"},
                timings=self._timings,
            )
            return Session(carrier, client=True, timings=self._timings, name=f"to peer {owner.instance_id}")
        raise refused
