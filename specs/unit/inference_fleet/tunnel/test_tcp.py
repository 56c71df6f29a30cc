from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from inference_fleet.tunnel.tcp import TcpCarrier

from .linked import within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Tell = Callable[[TcpCarrier, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _linked(tell: Tell) -> None:
    """A carrier and the bare other end of its connection."""

    async def story() -> None:
        came: asyncio.Future[TcpCarrier] = asyncio.get_running_loop().create_future()
        server = await asyncio.start_server(
            lambda reader, writer: came.set_result(TcpCarrier(reader, writer)), "127.0.0.1", 0
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            await tell(await came, reader, writer)
        finally:
            writer.transport.abort()
            (await came).abort()
            server.close()
            await server.wait_closed()

    asyncio.run(story())


async def _say_more(writer: asyncio.StreamWriter) -> None:
    for _ in range(3):
        writer.write(b"a window update")
        await writer.drain()
        await asyncio.sleep(0)


def test_a_close_hears_out_a_peer_that_still_sends() -> None:
    async def tell(carrier: TcpCarrier, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await carrier.send(b"the last we say")
        closing = asyncio.create_task(carrier.close())
        assert await within(reader.read()) == b"the last we say"
        (broken,) = await asyncio.gather(_say_more(writer), return_exceptions=True)
        assert broken is None, "the connection was closed under what the peer still sent"
        assert not closing.done()
        writer.close()
        await within(closing)

    _linked(tell)


def test_a_close_takes_a_peers_reset_for_its_end_and_does_not_mind_a_read_that_still_waits() -> None:
    async def tell(carrier: TcpCarrier, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting = asyncio.create_task(carrier.receive())
        closing = asyncio.create_task(carrier.close())
        assert await within(reader.read()) == b""
        waiting.cancel()
        writer.transport.abort()
        await within(closing)

    _linked(tell)
