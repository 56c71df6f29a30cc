"""uvicorn with our own ending: SIGTERM means stop now and exit 0, and the listener is loopback."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

_BACKLOG = 1024


class PortTaken(OSError):
    """The port to listen on belongs to somebody else."""


class QuietServer(uvicorn.Server):
    """A server whose owner decides when it ends; uvicorn re-raises SIGTERM, which would make the exit -15."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the process's signals alone."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listener, so that a taken port is an error by name before anything else starts."""
    # the protocol is named: asyncio sends small answers at once (TCP_NODELAY) on sockets that say they are TCP alone
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)  # from here on nobody is refused, though the answer may take a moment
    except OSError as error:
        listener.close()
        raise PortTaken(f"{host}:{port}: {error.strerror}") from error
    listener.set_inheritable(False)
    return listener


def server_of(app: Any, *, keep_alive_s: float) -> QuietServer:
    """A server for one small ASGI application, without access log, lifespan and WebSockets."""
    return QuietServer(
        uvicorn.Config(
            app,
            loop="asyncio",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=max(1, int(keep_alive_s)),
        )
    )


async def serve_until_signal(server: uvicorn.Server, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT; what still runs then is cut, its client sees the connection close."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _end, server)
    await server.serve(sockets=[listener])


def _end(server: uvicorn.Server) -> None:
    server.should_exit = True
    server.force_exit = True
