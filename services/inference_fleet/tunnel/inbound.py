"""The receiving half of a session: headers to the core, payload to its stream, events to the session."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, Protocol

from inference_fleet.tunnel.websocket import opened, turned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inference_fleet.tunnel.carrier import Carrier
    from inference_fleet.tunnel.outbound import Outbound
    from inference_fleet.tunnel.stream import Stream
    from inference_fleet.tunnel.yamux.core import Mux
    from inference_fleet.tunnel.yamux.events import Event


_TURN_BYTES: Final = 16 * 1024


class InboundHost(Protocol):
    """What the receiving half asks of its session."""

    def is_over(self) -> bool:
        """Whether the session has ended, after which nothing counts."""

    def heard(self) -> None:
        """The peer lives."""

    def on_event(self, event: Event) -> None:
        """What the core made of a header or of the end of some payload."""

    def failed(self, error: Exception) -> None:
        """End the session by the name of this."""

    def closed_by_peer(self) -> None:
        """End it since nothing comes any more."""


class Inbound:
    """Cuts what comes at the boundaries the core names; no payload is looked at or kept.

    It is the `Receiver` of a direct carrier; an awaited one is read by `read`.
    """

    def __init__(self, mux: Mux, streams: Mapping[int, Stream], out: Outbound, host: InboundHost) -> None:
        """`streams` is the session's own table."""
        self._mux = mux
        self._streams = streams
        self._out = out
        self._host = host

    def feed(self, message: memoryview, key: bytes) -> None:
        """Bytes of the peer in order, each opened with `key` where it is used. Raises the core's `ProtocolError`."""
        mux, host, at, end = self._mux, self._host, 0, len(message)
        now = time.monotonic()
        while at < end and not host.is_over():
            due = mux.header_due
            if due:
                piece = opened(message[at : at + due], turned(key, at))
                at += len(piece)
                events = mux.receive_header(piece, now)
            else:
                length = min(end - at, mux.payload_due)
                stream = self._streams.get(mux.payload_stream)
                if stream is not None:
                    data = message[at : at + length]
                    stream.deliver(opened(data, turned(key, at)) if key else data)
                at += length
                if host.is_over():
                    return
                events = mux.receive_payload(length)
            for event in events:
                host.on_event(event)

    async def read(self, carrier: Carrier) -> None:
        """Ask an awaited carrier for all it brings."""
        while not self._host.is_over():
            message = await carrier.receive()
            if message is None:
                self._host.closed_by_peer()
                return
            self._host.heard()
            await self._feed_in_turns(message)
            self._out.wake()

    async def _feed_in_turns(self, message: bytes) -> None:
        """However many frames a message holds, everybody else of the loop has turns in between."""
        for at in range(0, len(message), _TURN_BYTES):
            self.feed(memoryview(message)[at : at + _TURN_BYTES], b"")
            await asyncio.sleep(0)  # behind the last too: a carrier with more at hand does not wait

    # ---- Receiver

    def heard(self) -> None:
        """Any received byte is a sign of life. What it asks for is collected until all of the read is told."""
        if not self._host.is_over():
            self._host.heard()
            self._out.hold()

    def received(self, data: memoryview, key: bytes) -> None:
        """Payload of the WebSocket."""
        if self._host.is_over():
            return
        try:
            self.feed(data, key)
        except Exception as error:  # noqa: BLE001  # named in the ending, as of every part of the session
            self._host.failed(error)

    def received_all(self) -> None:
        """One read was told."""
        if not self._host.is_over():
            self._out.let_go()

    def writable(self) -> None:
        """The transport takes bytes again."""
        self._out.send_now()

    def carrier_lost(self, why: Exception | None) -> None:
        """Nothing comes and nothing goes any more."""
        self._out.stop()
        if why is None:
            self._host.closed_by_peer()
        else:
            self._host.failed(why)
