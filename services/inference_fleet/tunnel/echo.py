"""`python -m inference_fleet.tunnel.echo`: a bare yamux end over TCP that echoes every stream, for foreign peers.

It leaves as a replica does: go-away first, then it waits for the streams that run. `BLACKSTART_TIMINGS` and
`BLACKSTART_TIMING_<NAME>_S` hold.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from inference_fleet.settings import Deadline, SettingsError, Timings
from inference_fleet.settings.commands import BAD_INPUT, Arguments, complain
from inference_fleet.tunnel.session import Session
from inference_fleet.tunnel.tcp import TcpCarrier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inference_fleet.tunnel.errors import Ending
    from inference_fleet.tunnel.stream import Stream

_OK, _FAILED = 0, 1


async def echo_stream(stream: Stream) -> None:
    """Send back whatever comes, as fast as it is read; half-close follows half-close."""
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    stream.set_protocol(_Echo(stream, over))
    await over


class _Echo(asyncio.Protocol):
    def __init__(self, stream: Stream, over: asyncio.Future[None]) -> None:
        self._stream = stream
        self._over = over

    def data_received(self, data: bytes) -> None:
        self._stream.write(data)

    def eof_received(self) -> bool:
        self._stream.write_eof()
        return True

    def pause_writing(self) -> None:
        self._stream.pause_reading()

    def resume_writing(self) -> None:
        self._stream.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # over, well or badly
        if not self._over.done():
            self._over.set_result(None)


class _BadInputError(ValueError):
    """A flag that cannot be used, in the form `<thing>=<value>: <what is wrong>; try: <remedy>`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM or Ctrl-C (status 0, after the last stream), or, as a client, until the session ends."""
    parser = Arguments(
        prog="python -m inference_fleet.tunnel.echo",
        description="A bare yamux end over TCP that echoes every stream its peer opens.",
    )
    parser.add_argument(
        "--role",
        required=True,
        choices=("client", "server"),
        help="server listens, client connects (odd ids)",
    )
    parser.add_argument("--tcp", required=True, metavar="HOST:PORT", help="where to listen or connect")
    options = parser.parse_args(argv)
    try:
        host, port = _address(options.tcp, role=options.role)
        return asyncio.run(_run(options.role, host, port, Timings.from_environ(os.environ)))
    except (_BadInputError, SettingsError) as error:
        return complain(str(error), BAD_INPUT)
    except OSError as error:
        return complain(f"tcp={options.tcp}: {error}; try: another address, or start the peer", _FAILED)


def _address(text: str, *, role: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    lowest = 0 if role == "server" else 1
    if not host or not (port.isascii() and port.isdigit()) or not lowest <= int(port[:6]) <= 65535:
        raise _BadInputError(
            f"tcp={text}: must be HOST:PORT with a port from {lowest} to 65535; try: --tcp 127.0.0.1:7000"
        )
    return host.strip("[]"), int(port)


async def _run(role: str, host: str, port: int, timings: Timings) -> int:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if role == "server":
        return await _listen(host, port, timings, stop)
    return await _connect(host, port, timings, stop)


async def _listen(host: str, port: int, timings: Timings, stop: asyncio.Event) -> int:
    sessions: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ending = await _drive(TcpCarrier(reader, writer), client=False, timings=timings, stop=stop)
        _say(f"session over: {ending.cause}")

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        sessions.add(task)
        task.add_done_callback(sessions.discard)

    server = await asyncio.start_server(accepted, host, port)
    bound = server.sockets[0].getsockname()
    _say(f"listening on {bound[0]}:{bound[1]}")
    await stop.wait()
    server.close()
    await asyncio.gather(*sessions)
    return _OK


async def _connect(host: str, port: int, timings: Timings, stop: asyncio.Event) -> int:
    async with asyncio.timeout(timings.handshake_s):
        reader, writer = await asyncio.open_connection(host, port)
    _say(f"connected to {host}:{port}")
    ending = await _drive(TcpCarrier(reader, writer), client=True, timings=timings, stop=stop)
    _say(f"session over: {ending.cause}")
    return (
        _OK if ending.clean or stop.is_set() or ending.cause == "the peer closed the connection" else _FAILED
    )


async def _drive(carrier: TcpCarrier, *, client: bool, timings: Timings, stop: asyncio.Event) -> Ending:
    """One session to its end; once asked to stop it goes away and gives its streams `drain_wait_s`."""
    session = Session(carrier, client=client, timings=timings, on_stream=echo_stream)
    run = asyncio.ensure_future(session.run())
    stopped = asyncio.ensure_future(stop.wait())
    await asyncio.wait({run, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not run.done():
        session.go_away("asked to stop")
        await session.drained(Deadline.after(timings.drain_wait_s))
        await session.close()
    return await run


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
