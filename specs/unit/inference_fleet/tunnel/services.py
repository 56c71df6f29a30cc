"""Small TCP services on the loopback, as backends behind a splice."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def service(serve: Serve) -> AsyncIterator[int]:
    """A server on a port the kernel chose; gives the port."""
    writers: list[asyncio.StreamWriter] = []

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass  # the peer of a spec may well reset
        finally:
            writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def answer_after_eof(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads to the end of file and only then answers: works only if half-close is kept."""
    request = await reader.read()
    writer.write(b"got " + str(len(request)).encode())
    await writer.drain()


def reset_connection(writer: asyncio.StreamWriter) -> None:
    """Close with a TCP reset instead of an end of file."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def refusing_port() -> int:
    """A loopback port nobody listens on: bound once, closed again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
