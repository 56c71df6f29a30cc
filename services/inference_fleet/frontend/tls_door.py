"""A connection during its TLS handshake: bounded by the time allowed for request headers, and counted among the silent ones.

The server behind hears of a connection only once TLS stands on it. A listener that left this to asyncio would wait a
minute for each handshake, and for any number of them at once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from inference_fleet.frontend.listener import GuardedHttp

_log = logging.getLogger(__name__)


class _Early(asyncio.Protocol):
    """Keeps what came right behind the handshake, until the server's protocol stands there."""

    def __init__(self) -> None:
        self.kept: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        self.kept.append(data)


class TlsDoor(asyncio.Protocol):
    """Opens once. `books` is where a server that stops finds whom to hang up on, by `shutdown`."""

    def __init__(
        self,
        inside: GuardedHttp,
        context: ssl.SSLContext,
        *,
        books: set[object],
        within_s: float,
        parting_s: float,
    ) -> None:
        """`within_s` bounds the handshake, `parting_s` the goodbye of TLS itself, which a peer need not answer."""
        self._inside = inside
        self._context = context
        self._books = books
        self._within_s = within_s
        self._parting_s = parting_s
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, or hang up when too many connections say nothing."""
        assert isinstance(transport, asyncio.Transport)
        if self._inside.turned_away(transport):
            return
        self._transport = transport
        transport.pause_reading()
        self._inside.silent.add(self)
        self._books.add(self)
        self._opening = asyncio.get_running_loop().create_task(self._open(transport), name="TLS handshake")

    def shutdown(self) -> None:
        """The server stops."""
        if self._opening is not None and self._transport is not None:
            self._transport.abort()
            self._opening.cancel()

    async def _open(self, transport: asyncio.Transport) -> None:
        early, inside = _Early(), self._inside
        peer = transport.get_extra_info("peername")
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport,
                early,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._within_s,
                ssl_shutdown_timeout=self._parting_s,
            )
        except OSError as error:
            _log.info("hanging up on %s: no TLS handshake: %s", peer, str(error) or type(error).__name__)
            transport.abort()
            return
        except Exception:  # noqa: BLE001 - whatever it is, nobody awaits this task, and the peer waits
            _log.exception("hanging up on %s: its TLS handshake could not begin", peer)
            transport.abort()
            return
        finally:
            inside.silent.discard(self)
            self._books.discard(self)
        if encrypted is None or encrypted.is_closing():
            return
        # nothing is awaited from here on, so no byte comes between what was kept and what follows
        encrypted.set_protocol(inside)
        inside.connection_made(encrypted)
        for data in early.kept:
            if not encrypted.is_closing():
                inside.data_received(data)


def behind_tls(
    made: type[GuardedHttp], context: ssl.SSLContext, *, within_s: float, parting_s: float
) -> Callable[..., TlsDoor]:
    """What makes a server's protocols, with a door before each; for `uvicorn.Config(http=...)`."""

    def door(**given: object) -> TlsDoor:
        books: set[object] = given["server_state"].connections  # type: ignore[attr-defined]  # uvicorn's ServerState
        return TlsDoor(
            made(**given),  # type: ignore[arg-type]  # what uvicorn gives to each of its protocols
            context,
            books=books,
            within_s=within_s,
            parting_s=parting_s,
        )

    return door
