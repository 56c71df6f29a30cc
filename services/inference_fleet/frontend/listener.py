"""The connections of one replica before they are requests: a cap on silent ones, and a deadline for their headers.

Both protocols are uvicorn's own, taken by the documented `http=` and `ws=` options, with what a server on the
open network needs besides.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from inference_fleet.frontend.tls_door import behind_tls
from inference_fleet.tunnel.frontend import TakeoverWebSocketProtocol
from inference_fleet.tunnel.websocket import MESSAGE_BYTES

if TYPE_CHECKING:
    import asyncio
    import ssl

    from uvicorn._types import ASGISendEvent
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

SILENT_AT_ONCE = 1024
HEADER_BYTES = 64 * 1024

_log = logging.getLogger(__name__)


class _Parser:
    """uvicorn's parser, which also remembers where the headers of an upgrade ended: its caller leaves that out."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self.upgraded_at: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        """As httptools' own."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            (self.upgraded_at,) = upgrade.args
            raise


class GuardedHttp(HttpToolsProtocol):
    """HTTP/1.1 where a connection has to say what it wants within `header_s`, in at most 64 KiB of headers.

    What is neither header nor body (chunk sizes, trailers) is kept by the parser as well, so it has the same cap
    from one piece of body to the next. A body whose answer is out already does not keep the connection.

    `header_s` and the count of silent connections belong to the class that `guarded_http` makes for a server.
    """

    header_s: float
    silent: set[asyncio.BaseProtocol]

    _timer: asyncio.TimerHandle | None = None
    _unread = 0
    _framing = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn declares it
        """Start the clock, or hang up when too many connections say nothing."""
        super().connection_made(transport)
        self._upgrade = self.parser = _Parser(self.parser)  # type: ignore[assignment]  # it is one but by name
        if not self.turned_away(transport):
            self.silent.add(self)
            self._timer = self.loop.call_later(self.header_s, self._too_slow)

    def turned_away(self, transport: asyncio.Transport) -> bool:
        """Whether one more silent connection is one too many; then it was hung up on."""
        if len(self.silent) < SILENT_AT_ONCE:
            return False
        _log.warning("%d connections have said nothing yet; hanging up on another", len(self.silent))
        transport.abort()
        return True

    def data_received(self, data: bytes) -> None:
        """Count header bytes until the headers are complete; a body that came with them in one piece is none."""
        if self not in self.silent:
            self._framing += len(data)
            self._parse(data, len(data))
            if self._framing > HEADER_BYTES and not self.transport.is_closing():
                _log.info("hanging up on %s: %d bytes that are no body", self.client, self._framing)
                self.transport.abort()
            return
        room = HEADER_BYTES - self._unread
        self._unread += len(data)
        self._parse(data, room)
        if len(data) <= room or self.transport.is_closing():
            return
        if self in self.silent:
            _log.info("hanging up on %s: headers past %d bytes", self.client, HEADER_BYTES)
            self.transport.abort()
        elif self.transport.get_protocol() is self:  # an upgraded connection is another protocol's by now
            super().data_received(data[room:])

    def _parse(self, data: bytes, most: int) -> None:
        """Whatever follows the headers of an upgrade in one read with them is said to the upgraded connection."""
        super().data_received(data[:most])
        upgraded = self.transport.get_protocol()
        at = self._upgrade.upgraded_at
        if at is not None and at < len(data) and isinstance(upgraded, TunnelWebSocket):
            upgraded.data_received(data[at:])

    def on_message_begin(self) -> None:
        """A request begins; on a kept connection the clock starts again."""
        super().on_message_begin()
        super()._unset_keepalive_if_required()
        if self not in self.silent:
            self.silent.add(self)
            self._unread = 0
            self._timer = self.loop.call_later(self.header_s, self._too_slow)

    def on_headers_complete(self) -> None:
        """It has said what it wants."""
        self._heard()
        self._framing = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body: what came with it is accounted for."""
        self._framing = 0
        super().on_body(body)

    def _unset_keepalive_if_required(self) -> None:
        """Bytes of a body that nobody waits for are no sign of another request: the clock goes on."""
        cycle: RequestResponseCycle | None = (
            self.cycle
        )  # None before the first request, whatever uvicorn declares
        if cycle is None or not (cycle.response_complete and cycle.more_body):
            super()._unset_keepalive_if_required()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._heard()
        super().connection_lost(exc)

    def _heard(self) -> None:
        self.silent.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        _log.info("hanging up on %s: no complete request headers within %g s", self.client, self.header_s)
        self.transport.abort()


def guarded_http(*, header_s: float) -> type[GuardedHttp]:
    """The protocol class of one server."""
    return type("GuardedHttp", (GuardedHttp,), {"header_s": header_s, "silent": set()})


class TunnelWebSocket(TakeoverWebSocketProtocol):
    """WebSockets whose route can drop the transport or have it, and whose refusal before the upgrade is no error."""

    def data_received(self, data: bytes) -> None:
        """Hang up on a handshake with more or longer headers than the library reads: uvicorn would wait for ever."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            _log.info("hanging up on %s: %s", self.client, self.conn.handshake_exc)
            self.transport.abort()

    async def send(self, message: ASGISendEvent) -> None:
        """A denial that has been sent completes the handshake; otherwise uvicorn logs it as a broken application."""
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True


def uvicorn_options(
    *, header_s: float, idle_s: float, parting_s: float, tls: ssl.SSLContext | None = None
) -> dict[str, Any]:
    """What `uvicorn.Config` is told about the connections of a replica; `idle_s` between two requests of one.

    With `tls`, every connection is TLS, handled by our own door (uvicorn gets no certificate); `parting_s` bounds
    the closing of TLS.
    """
    http = guarded_http(header_s=header_s)
    return {
        "http": http if tls is None else behind_tls(http, tls, within_s=header_s, parting_s=parting_s),
        "timeout_keep_alive": idle_s,
        "ws": TunnelWebSocket,
        "ws_max_size": MESSAGE_BYTES,
        "ws_ping_interval": None,  # the sessions inside ping by themselves
        "ws_ping_timeout": None,
        "ws_per_message_deflate": False,  # the payload is not ours to compress
        "proxy_headers": False,  # which proxies are believed is our own setting
        "server_header": False,
        "access_log": False,
        "log_config": None,
    }
