"""aiohttp over streams: one stream a connection, one connection a request, and a hang-up that reaches the far end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import aiohttp
from aiohttp.client_proto import ResponseHandler

from inference_fleet.tunnel.errors import DeadlineExpired, SessionDead, StreamLimit, StreamReset
from inference_fleet.tunnel.refusals import StreamRefused

if TYPE_CHECKING:
    import asyncio

    from aiohttp import ClientRequest, ClientTimeout
    from aiohttp.tracing import Trace

    from inference_fleet.tunnel.stream import Stream

Open: TypeAlias = Callable[[], Awaitable["Stream"]]

_READ_BUFFER_BYTES: Final = 128 * 1024
_TUNNEL_ERRORS: Final = (DeadlineExpired, SessionDead, StreamLimit, StreamRefused, StreamReset)


def stream_client(
    open_stream: Open, *, auto_decompress: bool = False, timeout: ClientTimeout | None = None
) -> aiohttp.ClientSession:
    """A client session each of whose requests runs over a stream of its own from `open_stream()`.

    The host in the URL is a name for logs and the Host header; nothing resolves or dials it. Nothing is pooled,
    no cookie is kept, no proxy of the environment applies and, unless given, no time-out but the caller's own.
    Bodies pass undecoded by default, as a proxy wants them. Leaving a response before its end (close, cancel)
    resets the stream, so the far side stops its work.

    Errors of `open_stream` arrive inside aiohttp's own; `tunnel_error` finds them.
    """
    return aiohttp.ClientSession(
        connector=_StreamConnector(open_stream),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=timeout or aiohttp.ClientTimeout(total=None, sock_connect=None),
        auto_decompress=auto_decompress,
        read_bufsize=_READ_BUFFER_BYTES,
        trust_env=False,
    )


def tunnel_error(error: BaseException) -> BaseException | None:
    """The tunnel's own error behind an aiohttp error, following explicit causes only; None when there is none."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, _TUNNEL_ERRORS):
        seen = seen.__cause__
    return seen


class _StreamConnector(aiohttp.BaseConnector):
    def __init__(self, open_stream: Open) -> None:
        super().__init__(limit=0, force_close=True)
        self._open_stream = open_stream

    async def _create_connection(
        self,
        req: ClientRequest,  # noqa: ARG002  # the library's hook: the stream is bound to its target already
        traces: list[Trace],  # noqa: ARG002  # see req
        timeout: ClientTimeout,  # noqa: ARG002, ASYNC109  # see req; the caller's deadline is in open_stream
    ) -> ResponseHandler:
        stream = await self._open_stream()
        handler = _StreamResponse(self._loop)
        handler.connection_made(stream)
        stream.set_protocol(handler)
        return handler


class _StreamResponse(ResponseHandler):
    """The library's response parser, whose `close` tells a finished exchange from an abandoned one."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)

    def close(self) -> None:
        """FIN after a complete response, RST before: a hang-up must not look like an idle half-close."""
        if self._payload is not None and self._payload.is_eof():
            super().close()
        else:
            self.abort()
