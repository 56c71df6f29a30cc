"""The tunnel: yamux sessions over WebSockets, streams as transports, handshake, refusals, splice.

What only one side needs is in `tunnel.frontend` and `tunnel.worker`; this package imports neither.
"""

from inference_fleet.tunnel.carrier import Carrier, DirectCarrier
from inference_fleet.tunnel.dial import DialFailed, DialRefused, dial_websocket
from inference_fleet.tunnel.direct import DirectWebSocket
from inference_fleet.tunnel.errors import (
    DeadlineExpired,
    Ending,
    HandshakeBroken,
    SessionDead,
    StreamLimit,
    StreamReset,
)
from inference_fleet.tunnel.frames import FRAME_LIMIT, FrameMalformed, read_frame, write_frame
from inference_fleet.tunnel.handshake import (
    PROTOCOL_PAGE,
    TAG_BACKEND,
    TAG_HTTP,
    StreamRequest,
    accept_stream,
    read_reply,
    refuse_stream,
    refuse_stream_as,
    request_stream,
)
from inference_fleet.tunnel.notices import Notices, ResetCause, StallSide, counted
from inference_fleet.tunnel.parting import part
from inference_fleet.tunnel.reconnect import ReconnectSchedule
from inference_fleet.tunnel.refusals import (
    REFUSAL_LABELS,
    REFUSALS,
    Refusal,
    StreamRefused,
    is_evidence,
    refusal_label,
    refusal_of,
)
from inference_fleet.tunnel.session import Session
from inference_fleet.tunnel.splice import Joint, Spliced, SpliceStalled, splice
from inference_fleet.tunnel.stream import Stream
from inference_fleet.tunnel.yamux.limits import Limits

__all__ = [
    "FRAME_LIMIT",
    "PROTOCOL_PAGE",
    "REFUSALS",
    "REFUSAL_LABELS",
    "TAG_BACKEND",
    "TAG_HTTP",
    "Carrier",
    "DeadlineExpired",
    "DialFailed",
    "DialRefused",
    "DirectCarrier",
    "DirectWebSocket",
    "Ending",
    "FrameMalformed",
    "HandshakeBroken",
    "Joint",
    "Limits",
    "Notices",
    "ReconnectSchedule",
    "Refusal",
    "ResetCause",
    "Session",
    "SessionDead",
    "SpliceStalled",
    "Spliced",
    "StallSide",
    "Stream",
    "StreamLimit",
    "StreamRefused",
    "StreamRequest",
    "StreamReset",
    "accept_stream",
    "counted",
    "dial_websocket",
    "is_evidence",
    "part",
    "read_frame",
    "read_reply",
    "refusal_label",
    "refusal_of",
    "refuse_stream",
    "refuse_stream_as",
    "request_stream",
    "splice",
    "write_frame",
]
