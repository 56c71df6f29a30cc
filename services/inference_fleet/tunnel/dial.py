"""Dialling a WebSocket that will carry a session: used by workers towards replicas and by replicas towards peers."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Mapping

    from websockets.asyncio.client import ClientConnection

    from inference_fleet.settings import Timings

MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_BODY_LIMIT: Final = 2048
_WRITE_HIGH_BYTES: Final = 128 * 1024
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


class ClientCarrier:
    """A dialled WebSocket as a carrier."""

    path = "client"

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def receive(self) -> bytes | None:
        """The next message's bytes; whether they are yamux is the session's to say, a text message's too."""
        try:
            message = await self._connection.recv(decode=False)
        except ConnectionClosed:
            return None
        return message

    async def send(self, data: bytes) -> None:
        """One binary message; waits for the transport to take it."""
        try:
            await self._connection.send(data)
        except ConnectionClosed as error:
            raise ConnectionResetError(f"the WebSocket is closed: {error}") from None

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """The closing handshake, bounded by the connection's own close timeout."""
        await self._connection.close(code, reason[:100])

    def abort(self) -> None:
        """Drop the TCP connection."""
        self._connection.transport.abort()


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
) -> tuple[ClientCarrier, Mapping[str, str]]:
    """Dial `ws(s)://` (or `http(s)://`) `url` and give the carrier and the headers of the 101.

    Compression and the library's own keepalive are off: the payload is not ours to compress and the session
    pings by itself. `HTTPS_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` hold. Raises `DialRefused` for an HTTP answer,
    `DialFailed` for everything else, both naming the URL.
    """
    address = "ws" + url.removeprefix("http") if url.startswith("http") else url
    extra: dict[str, Any] = {} if ssl is None else {"ssl": ssl}
    try:
        connection = await _Connect(
            address,
            subprotocols=[Subprotocol(subprotocol)],
            additional_headers=dict(headers),
            compression=None,
            open_timeout=timings.handshake_s,
            close_timeout=timings.keepalive_timeout_s,
            ping_interval=None,
            ping_timeout=None,
            max_size=MAX_MESSAGE_BYTES,
            write_limit=_WRITE_HIGH_BYTES,
            **extra,
        )
    except InvalidStatus as error:
        response = error.response
        raise DialRefused(
            url,
            response.status_code,
            bytes(response.body)[:_BODY_LIMIT].decode("utf-8", "replace"),
            _seconds(response.headers.get("Retry-After")),
        ) from None
    except TimeoutError:
        raise DialFailed(f"{url} did not finish the handshake within {timings.handshake_s:g} s") from None
    except (InvalidHandshake, WebSocketException, OSError, EOFError, ValueError) as error:
        raise DialFailed(f"{url}: {str(error) or type(error).__name__}") from error
    response_headers = connection.response.headers if connection.response is not None else {}
    if connection.subprotocol != subprotocol:
        connection.transport.abort()
        raise DialFailed(f"{url} speaks {connection.subprotocol or 'no subprotocol'}, not {subprotocol}")
    return ClientCarrier(connection), {name.lower(): value for name, value in response_headers.items()}


def _seconds(value: str | None) -> float | None:
    try:
        seconds = float(value or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e6 else None
