"""Dialling a WebSocket that will carry a session: used by workers towards replicas and by replicas towards peers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.protocol import State
from websockets.typing import Subprotocol

from inference_fleet.tunnel.certificates import REMEDY, tls_failure
from inference_fleet.tunnel.direct import DirectWebSocket

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Mapping

    from inference_fleet.settings import Timings

_BODY_LIMIT: Final = 2048
_log = logging.getLogger(__name__)


class DialFailed(ConnectionError):
    """Nothing answered as a WebSocket server should; says nothing about what it would have answered."""


class DialRefused(ConnectionError):
    """The server answered the dial with plain HTTP instead of an upgrade: its verdict, with its words."""

    def __init__(self, url: str, status: int, body: str, retry_after_s: float | None) -> None:
        """`body` is cut to a bounded length; `retry_after_s` comes from `Retry-After` when that names seconds."""
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s
        super().__init__(f"{url} answered the dial with HTTP {status}: {body}".rstrip(": "))


class _Handshake(ClientConnection):
    """Hears the answer to the handshake and not a byte more: what follows is the session's."""

    _seen = b""
    _answered = False
    early = b""

    def data_received(self, data: bytes) -> None:
        """Feed the library up to the end of the headers; after an upgrade hold back the rest and stop reading."""
        if self._upgraded():
            self.early += data
            return
        if self._answered:
            super().data_received(data)  # the body of a refusal
            return
        whole = self._seen + data
        end = whole.find(b"\r\n\r\n")
        if end < 0:
            self._seen = whole[-3:]
            super().data_received(data)
            return
        self._answered = True
        cut = end + 4 - len(self._seen)
        super().data_received(data[:cut])
        if self._upgraded():
            self.transport.pause_reading()
        if data[cut:]:
            self.data_received(data[cut:])

    def _upgraded(self) -> bool:
        return self.protocol.state is State.OPEN


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow nothing: credentials go to the address that was configured, and nowhere else."""
        return exc


async def dial_websocket(
    url: str,
    *,
    subprotocol: str,
    headers: Mapping[str, str],
    timings: Timings,
    ssl: ssl_module.SSLContext | None = None,
    server_name: str = "",
    remedy: str = REMEDY,
) -> tuple[DirectWebSocket, Mapping[str, str]]:
    """Dial `ws(s)://` (or `http(s)://`) `url` and give the carrier and the headers of the 101.

    Compression and the library's own keepalive are off: the payload is not ours to compress and the session
    pings by itself. `HTTPS_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` hold. Raises `DialRefused` for an HTTP answer,
    `DialFailed` for everything else, both naming the URL.

    Over TLS the certificate is verified against `ssl` (None: the system's authorities), on `server_name` (empty: the
    URL's host); `remedy` is what a person is told to look at when it is not believed.
    """
    address = "ws" + url.removeprefix("http") if url.startswith("http") else url
    extra: dict[str, Any] = {} if ssl is None else {"ssl": ssl}
    if address.startswith("wss:"):
        extra["ssl_shutdown_timeout"] = timings.keepalive_timeout_s
        if server_name:
            extra["server_hostname"] = server_name
    try:
        connection = await _Connect(
            address,
            create_connection=_Handshake,
            subprotocols=[Subprotocol(subprotocol)],
            additional_headers=dict(headers),
            compression=None,
            open_timeout=timings.handshake_s,
            close_timeout=timings.keepalive_timeout_s,
            ping_interval=None,
            ping_timeout=None,
            **extra,
        )
    except InvalidStatus as error:
        response = error.response
        raise DialRefused(
            url,
            response.status_code,
            bytes(response.body)[:_BODY_LIMIT].decode("utf-8", "replace"),
            _seconds(next(iter(response.headers.get_all("Retry-After")), None)),
        ) from None
    except TimeoutError:
        raise DialFailed(f"{url} did not finish the handshake within {timings.handshake_s:g} s") from None
    except (InvalidHandshake, WebSocketException, OSError, EOFError, ValueError) as error:
        said = tls_failure(error, remedy=remedy) or str(error) or type(error).__name__
        raise DialFailed(f"{url}: {said}") from error
    assert connection.response is not None, "an upgrade has an answer"
    answered = {name.lower(): value for name, value in connection.response.headers.raw_items()}
    if connection.subprotocol != subprotocol:
        connection.transport.abort()
        raise DialFailed(f"{url} speaks {connection.subprotocol or 'no subprotocol'}, not {subprotocol}")
    assert isinstance(connection, _Handshake)
    if connection.connection_lost_waiter.done() or connection.transport.is_closing():
        raise DialFailed(f"{url} closed the connection right after its upgrade")
    carrier = DirectWebSocket(
        connection.transport,
        client=True,
        path="client",
        stall_s=timings.write_stall_s,
        early=connection.early,
    )
    return carrier, answered


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e6 else None
