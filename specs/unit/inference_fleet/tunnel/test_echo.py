from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from inference_fleet.tunnel import Session, SessionDead
from inference_fleet.tunnel.echo import main
from inference_fleet.tunnel.tcp import TcpCarrier

from .linked import TIMINGS, Collector, within
from .services import refusing_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MODULE = [sys.executable, "-m", "inference_fleet.tunnel.echo"]


@asynccontextmanager
async def _child(role: str, address: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *MODULE, "--role", role, "--tcp", address, stdout=subprocess.PIPE, env=dict(os.environ)
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # asyncio leaves the pipes to the collector


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(TIMINGS.start_s):
        return (await process.stdout.readline()).decode().strip()


class _First(Collector):
    """Also tells when something came."""

    def __init__(self) -> None:
        super().__init__()
        self.some = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.some.set()


async def _echoed(session: Session, payload: bytes) -> bytes:
    stream, seen = session.open_stream(), Collector()
    stream.set_protocol(seen)
    stream.write(payload)
    stream.write_eof()
    await within(seen.lost)
    return bytes(seen.data)


def test_the_listening_end_echoes_every_stream_and_leaves_with_status_0_on_sigterm() -> None:
    async def story() -> None:
        async with _child("server", "127.0.0.1:0") as process:
            address = (await _line(process)).removeprefix("listening on ")
            host, port = address.split(":")
            session = Session(
                TcpCarrier(*await asyncio.open_connection(host, int(port))), client=True, timings=TIMINGS
            )
            run = asyncio.create_task(session.run())
            payload = bytes(range(256)) * 4000
            assert await asyncio.gather(*(_echoed(session, payload) for _ in range(5))) == [payload] * 5
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(TIMINGS.shutdown_s):
                assert await process.wait() == 0
            await within(run)

    asyncio.run(story())


def test_the_connecting_end_is_the_yamux_client_and_echoes_as_well() -> None:
    async def story() -> None:
        connected: asyncio.Future[TcpCarrier] = asyncio.get_running_loop().create_future()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.set_result(TcpCarrier(reader, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with _child("client", f"127.0.0.1:{port}") as process:
            assert await _line(process) == f"connected to 127.0.0.1:{port}"
            session = Session(await connected, client=False, timings=TIMINGS)
            run = asyncio.create_task(session.run())
            assert await _echoed(session, b"ping") == b"ping"
            await session.close()
            assert (await run).clean
            async with asyncio.timeout(TIMINGS.shutdown_s):
                assert await process.wait() == 0
        server.close()
        await server.wait_closed()

    asyncio.run(story())


@pytest.mark.parametrize("role", ["server", "client"])
def test_asked_to_stop_it_goes_away_and_leaves_after_the_last_stream(role: str) -> None:
    async def story() -> None:
        connected: asyncio.Queue[TcpCarrier] = asyncio.Queue()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.put_nowait(TcpCarrier(reader, writer))

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = 0 if role == "server" else server.sockets[0].getsockname()[1]
        async with _child(role, f"127.0.0.1:{port}") as process:
            said = await _line(process)
            if role == "server":
                host, _, there = said.removeprefix("listening on ").partition(":")
                await accept(*await asyncio.open_connection(host, int(there)))
            session = Session(await connected.get(), client=role == "server", timings=TIMINGS)
            run = asyncio.create_task(session.run())
            running, seen = session.open_stream(), _First()
            running.set_protocol(seen)
            running.write(b"before ")
            await within(seen.some.wait())
            process.send_signal(signal.SIGTERM)
            await within(session.wait_leaving())
            assert session.streams_open == 1, "the running stream was cut"
            with pytest.raises(SessionDead):
                session.open_stream()
            running.write(b"and after")
            running.write_eof()
            await within(seen.lost)
            assert bytes(seen.data) == b"before and after", "the running stream was cut"
            await within(run)
            async with asyncio.timeout(TIMINGS.shutdown_s):
                assert await process.wait() == 0
        server.close()
        await server.wait_closed()

    asyncio.run(story())


def test_a_timing_nobody_can_use_is_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLACKSTART_TIMING_DRAIN_WAIT_S", "soon")
    assert main(["--role", "client", "--tcp", f"127.0.0.1:{refusing_port()}"]) == 2
    assert capsys.readouterr().err.startswith("blackstart: BLACKSTART_TIMING_DRAIN_WAIT_S=soon: ")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--role", "server", "--tcp", "nonsense"], "tcp=nonsense: must be HOST:PORT"),
        (["--role", "server", "--tcp", "127.0.0.1:"], "must be HOST:PORT"),
        (["--role", "server", "--tcp", ":80"], "must be HOST:PORT"),
        (["--role", "server", "--tcp", "127.0.0.1:65536"], "port from 0 to 65535"),
        (["--role", "client", "--tcp", "127.0.0.1:0"], "port from 1 to 65535"),
        (["--role", "client", "--tcp", "127.0.0.1:-5"], "must be HOST:PORT"),
    ],
)
def test_a_wrong_address_names_the_flag_the_value_and_the_remedy(
    argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("blackstart: tcp=")
    assert text in stderr
    assert "; try: " in stderr


@pytest.mark.parametrize("argv", [[], ["--role", "both", "--tcp", "x:1"], ["--role", "client"], ["--what"]])
def test_unknown_or_missing_flags_are_bad_input(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith("blackstart: argument=")
    assert stderr.endswith("; try: python -m inference_fleet.tunnel.echo --help\n")


def test_nobody_to_connect_to_is_an_error_that_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    port = refusing_port()
    assert main(["--role", "client", "--tcp", f"127.0.0.1:{port}"]) == 1
    assert f"tcp=127.0.0.1:{port}" in capsys.readouterr().err
