"""The process around the application: our signals, our order of leaving, uvicorn in between.

On SIGTERM or SIGINT: not ready any more, go-away to workers and peers, wait for running streams, then the
server ends and the process exits 0. uvicorn alone would cut every connection first and end by the signal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import signal
import socket
from typing import TYPE_CHECKING, Any

import uvicorn

from inference_fleet.frontend.app import build_app
from inference_fleet.frontend.listener import uvicorn_options
from inference_fleet.frontend.replica import open_replica
from inference_fleet.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inference_fleet.frontend.replica import Replica
    from inference_fleet.settings import FrontendSettings

_log = logging.getLogger(__name__)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


async def serve(settings: FrontendSettings) -> int:
    """Run one replica until a signal (0) or until one of its loops fails (1)."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    this = asyncio.current_task()
    assert this is not None
    serving = False

    def stop() -> None:
        if not serving:
            this.cancel()  # still starting: there is nothing to leave in order
        told.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        with bind(settings) as listening:
            async with open_replica(settings, port=listening.getsockname()[1]) as replica:
                serving = True
                return await serve_replica(replica, listening, told)
    except asyncio.CancelledError:
        if not told.is_set() or serving:
            raise
        return 0
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


async def serve_replica(replica: Replica, listening: socket.socket, told: asyncio.Event) -> int:
    """Serve on a bound socket until `told` (0) or until a loop of the replica fails (1)."""
    timings = replica.settings.timings
    config = uvicorn.Config(
        build_app(replica),
        lifespan="off",
        timeout_graceful_shutdown=math.ceil(timings.shutdown_s),
        **uvicorn_options(
            header_s=timings.handshake_s,
            idle_s=timings.http_idle_s,
            parting_s=timings.keepalive_timeout_s,
            tls=replica.tls,
        ),
    )
    server = _Server(config)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve([listening]), name="server")
        asked = group.create_task(told.wait(), name="told to stop")
        how = "" if replica.tls is None else " over TLS"
        _log.info("serving on %s:%d%s", *listening.getsockname()[:2], how)
        ends: list[asyncio.Future[Any]] = [serving, asked, replica.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finished = await replica.go_away()
        _log.info("left in order" if finished else "left with streams still running")
        server.should_exit = True
        asked.cancel()
    return 1 if replica.failed.done() else 0


@contextlib.contextmanager
def bind(settings: FrontendSettings) -> Iterator[socket.socket]:
    """The listening address, taken before anything else is started; nobody can connect until it is served."""
    host, port = settings.listen
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(settings, error) from None
    with listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(address)
        except OSError as error:
            raise _cannot_listen(settings, error) from None
        yield listening


def _cannot_listen(settings: FrontendSettings, error: OSError) -> SettingsError:
    host, port = settings.listen
    return SettingsError(
        "BLACKSTART_LISTEN", f"{host}:{port}", f"an address this process can take ({error.strerror or error})"
    )
