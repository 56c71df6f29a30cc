"""yamux, version 0 to the letter, without I/O and blind to payload: told headers and lengths, it answers with
events, credits and the headers to send.
"""

from inference_fleet.tunnel.yamux.core import Mux
from inference_fleet.tunnel.yamux.limits import Limits
from inference_fleet.tunnel.yamux.wire import Breach, ProtocolError

__all__ = ["Breach", "Limits", "Mux", "ProtocolError"]
