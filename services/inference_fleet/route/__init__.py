"""Could this replica get this request through now: the session table, the one dialer, the links between replicas."""

from inference_fleet.route.clock import SharedClock
from inference_fleet.route.dialer import Opened, StreamParts, WorkerDialer
from inference_fleet.route.outcomes import (
    OUTCOMES,
    CallerExpired,
    NoRelayPath,
    NoRoute,
    NothingLearned,
    NotOwner,
    OutcomeRule,
    OwnerUnknown,
    PeerUnreachable,
    RouteError,
    RouteOutcome,
    TunnelFailed,
    WorkerRefused,
)
from inference_fleet.route.owners import OwnersTogether
from inference_fleet.route.peer_links import PeerDial, PeerLinks
from inference_fleet.route.peer_server import PeerServer
from inference_fleet.route.relay_frame import RelayInvalid, RelayRequest
from inference_fleet.route.table import HeldSession, SessionTable

__all__ = [
    "OUTCOMES",
    "CallerExpired",
    "HeldSession",
    "NoRelayPath",
    "NoRoute",
    "NotOwner",
    "NothingLearned",
    "Opened",
    "OutcomeRule",
    "OwnerUnknown",
    "OwnersTogether",
    "PeerDial",
    "PeerLinks",
    "PeerServer",
    "PeerUnreachable",
    "RelayInvalid",
    "RelayRequest",
    "RouteError",
    "RouteOutcome",
    "SessionTable",
    "SharedClock",
    "StreamParts",
    "TunnelFailed",
    "WorkerDialer",
    "WorkerRefused",
]
