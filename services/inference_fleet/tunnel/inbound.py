"""The receiving half of a session: headers to the core, payload to its stream, events to the session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from inference_fleet.tunnel.websocket import opened, turned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inference_fleet.tunnel.stream import Stream
    from inference_fleet.tunnel.yamux.core import Mux
    from inference_fleet.tunnel.yamux.events import Event


class Inbound:
    """Cuts what comes at the boundaries the core names; no payload is looked at or kept."""

    def __init__(
        self,
        mux: Mux,
        streams: Mapping[int, Stream],
        *,
        tell: Callable[[Event], None],
        over: Callable[[], bool],
    ) -> None:
        """`streams` is the session's own table; `over` says that the session has ended, after which nothing counts."""
        self._mux = mux
        self._streams = streams
        self._tell = tell
        self._over = over

    def feed(self, message: memoryview, key: bytes) -> None:
        """Bytes of the peer in order, each opened with `key` where it is used. Raises the core's `ProtocolError`."""
        mux, at, end = self._mux, 0, len(message)
        now = time.monotonic()
        while at < end and not self._over():
            due = mux.header_due
            if due:
                piece = opened(message[at : at + due], turned(key, at))
                at += len(piece)
                events = mux.receive_header(piece, now)
            else:
                length = min(end - at, mux.payload_due)
                stream = self._streams.get(mux.payload_stream)
                if stream is not None:
                    stream.deliver(opened(message[at : at + length], turned(key, at)))
                at += length
                if self._over():
                    return
                events = mux.receive_payload(length)
            for event in events:
                self._tell(event)
