"""How this replica dials a peer: a WebSocket to the peer's advertised address, with a token made for that peer alone.

A bare `HOST:PORT` is dialled plain. `https://HOST:PORT` is dialled over TLS and by nothing else: a peer whose
certificate does not verify is one that cannot be reached.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_fleet.auth import PeerRefused
from inference_fleet.frontend.tls import PeerTrust
from inference_fleet.route import NoRelayPath
from inference_fleet.tunnel import Session, dial_websocket

if TYPE_CHECKING:
    from inference_fleet.auth import PeerTokens
    from inference_fleet.cluster import Owner
    from inference_fleet.route import SharedClock
    from inference_fleet.settings import Deadline, Timings
    from inference_fleet.tunnel import Notices

SUBPROTOCOL = "blackstart.peer.v1"
PATH = "/api/cluster/peer"
_REMEDY = "BLACKSTART_PEER_CA_FILE for who signed it, BLACKSTART_PEER_SERVER_NAME for the name in it"


class PeerDialer:
    """The `PeerDial` of a real replica."""

    def __init__(
        self,
        *,
        tokens: PeerTokens,
        clock: SharedClock,
        timings: Timings,
        trust: PeerTrust | None = None,
        notices: Notices | None = None,
    ) -> None:
        """Without `trust` the system's authorities are believed. `notices` is told by every link that is made."""
        self._notices = notices
        self._trust = trust or PeerTrust()
        self._tokens = tokens
        self._clock = clock
        self._timings = timings

    async def __call__(self, owner: Owner, *, deadline: Deadline) -> Session:
        """A session to the peer, past its upgrade; its frames are served by `run`."""
        del deadline  # the dial bounds itself with `handshake_s`, which is what the caller gives
        try:
            token = self._tokens.issue(owner.instance_id, now=self._clock.now())
        except PeerRefused as error:
            raise NoRelayPath(owner.instance_id, str(error)) from None
        over_tls = owner.address.startswith("https://")
        carrier, _ = await dial_websocket(
            f"{owner.address if over_tls else f'ws://{owner.address}'}{PATH}",
            subprotocol=SUBPROTOCOL,
            headers={"Authorization": f"Bearer {token}"},
            timings=self._timings,
            ssl=self._trust.context if over_tls else None,
            server_name=self._trust.server_name,
            remedy=_REMEDY,
        )
        return Session(
            carrier,
            client=True,
            timings=self._timings,
            name=f"to peer {owner.instance_id}",
            notices=self._notices,
        )
