"""The carrier on a transport of TLS, whose buffers lie in two layers and whose end is a conversation of its own."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from inference_fleet.tunnel import DirectWebSocket
from inference_fleet.tunnel.direct import TLS_WRITE_HIGH_BYTES
from inference_fleet.tunnel.outbound import WriteStalled
from inference_fleet.tunnel.websocket import CloseCode, Opcode, close_payload, frame_head, opened

from .awaited import Awaited
from .linked import TIMINGS, Secured, until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.needs("openssl")

KEY = b"\x11\x22\x33\x44"
SOON_S = TIMINGS.write_stall_s / 8
SETTLING = 10
HELD_BYTES = 16 * 1024
"""A peer's own buffer: it stops reading its socket at twice that."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured.made(tmp_path_factory.mktemp("tls"))


class Peer:
    """The client's side of a connection of TLS; what it does not `take` stays in its socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    def say(self, opcode: Opcode, payload: bytes) -> None:
        self.writer.write(frame_head(opcode, len(payload), KEY) + opened(memoryview(payload), KEY))

    async def take(self, most: int) -> bytes:
        taken = await within(self._reader.read(most))
        assert isinstance(taken, bytes)
        return taken

    async def hear(self, opcode: Opcode, payload: bytes) -> None:
        expected = frame_head(opcode, len(payload)) + payload
        assert await within(self._reader.readexactly(len(expected))) == expected


@asynccontextmanager
async def connected(
    secured: Secured,
    *,
    stall_s: float = TIMINGS.write_stall_s,
    parting_s: float = TIMINGS.keepalive_timeout_s,
) -> AsyncIterator[tuple[Peer, DirectWebSocket]]:
    """A peer and the accepting side's carrier, as if its WebSocket handshake were over."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[asyncio.Transport] = loop.create_future()

    class Accepting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            accepted.set_result(transport)

    server = await loop.create_server(
        Accepting, "127.0.0.1", 0, ssl=secured.server, ssl_shutdown_timeout=parting_s
    )
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=secured.client, limit=HELD_BYTES)
    carrier = DirectWebSocket(await accepted, client=False, path="takeover", stall_s=stall_s)
    try:
        yield Peer(reader, writer), carrier
    finally:
        carrier.abort()
        writer.transport.abort()
        server.close()
        await until(carrier._gone.done)


async def fill(carrier: DirectWebSocket) -> int:
    """Write until it says no, and until the kernel takes no more; how much that was."""
    filled = 0
    while carrier.can_write:
        carrier.write([bytes(64 * 1024)])
        filled += 64 * 1024
        await asyncio.sleep(0)
    return filled


def test_nothing_is_lost_that_came_before_the_session_was_there(secured: Secured) -> None:
    async def story() -> None:
        async with connected(secured) as (peer, carrier):
            for word in (b"abc", b"def"):
                peer.say(Opcode.BINARY, word)
            await within(peer.writer.drain())
            peer.say(Opcode.PING, b"there?")
            awaited = Awaited(carrier)
            heard = b""
            while len(heard) < 6:
                piece = await within(awaited.receive())
                assert isinstance(piece, bytes)
                heard += piece
            assert heard == b"abcdef"
            await peer.hear(Opcode.PONG, b"there?")

    asyncio.run(story())


def test_its_limit_of_what_waits_is_no_less_than_a_transport_of_tls_can_keep(secured: Secured) -> None:
    """With a limit of nothing it says that it is full and never again that it is not."""

    async def story() -> None:
        async with connected(secured) as (peer, carrier):
            low, high = carrier._transport.get_write_buffer_limits()
            assert (high, low) == (TLS_WRITE_HIGH_BYTES, TLS_WRITE_HIGH_BYTES // 4)
            filled, taken = await fill(carrier), 0
            while not carrier.can_write:
                taken += len(await peer.take(1 << 20))
            assert 0 < taken <= filled + filled // 1024

    asyncio.run(story())


def test_a_peer_that_stops_reading_is_cut_by_name(secured: Secured) -> None:
    async def story() -> None:
        async with connected(secured, stall_s=SOON_S) as (_, carrier):
            awaited = Awaited(carrier)
            told = asyncio.create_task(awaited.receive())
            async with asyncio.timeout(TIMINGS.request_s):  # a loop that was late judges at its next look
                while not told.done():
                    await fill(
                        carrier
                    )  # again where a kernel that was late with its acknowledgements took more
                    await asyncio.wait([told], timeout=SOON_S)
            assert told.result() is None
            assert isinstance(awaited.why, WriteStalled)

    asyncio.run(story())


def test_a_peer_that_reads_slowly_is_not_cut_though_the_upper_buffer_stays_as_it_is(secured: Secured) -> None:
    async def story() -> None:
        async with connected(secured, stall_s=TIMINGS.request_s) as (peer, carrier):
            awaited = Awaited(carrier)
            carrier.write([bytes(8 * 1024 * 1024)])  # all of it goes to the layer below
            await fill(carrier)
            assert not carrier.can_write
            size = carrier._transport.get_write_buffer_size()
            for _ in range(4):
                before = acknowledged(carrier)
                while acknowledged(carrier) == before:
                    assert await peer.take(64 * 1024), "a peer that reads was cut"
                carrier._judge()
                assert not carrier._transport.is_closing(), "a peer that reads was cut"
                assert carrier._transport.get_write_buffer_size() == size, "the spec needs a longer message"
            await settled(carrier)
            carrier._unsent = carrier._backlog()
            carrier._judge()  # the control: nothing was read since the last look
            assert await within(awaited.receive()) is None
            assert isinstance(awaited.why, WriteStalled)

    asyncio.run(story())


def acknowledged(carrier: DirectWebSocket) -> bytes:
    """How much the peer's kernel has taken, as ours tells (`tcpi_bytes_acked`)."""
    told = carrier._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
    assert isinstance(told, bytes)
    return told[120:]


async def settled(carrier: DirectWebSocket) -> None:
    """Until the kernels have moved between them what there was room for."""
    before = carrier._backlog()
    for _ in range(SETTLING):
        await asyncio.sleep(SOON_S / SETTLING)
        if before == (before := carrier._backlog()):
            return
    raise AssertionError("the peer goes on taking what it does not read")


def test_a_goodbye_is_told_at_once_though_its_sayer_owes_the_one_of_tls(secured: Secured) -> None:
    async def story() -> None:
        async with connected(secured, parting_s=TIMINGS.request_s) as (peer, carrier):
            awaited = Awaited(carrier)
            reading = peer.writer.transport
            assert isinstance(reading, asyncio.Transport)
            reading.pause_reading()
            peer.say(Opcode.CLOSE, close_payload(CloseCode.NORMAL, ""))
            assert await within(awaited.receive()) is None
            assert awaited.why is None
            assert not carrier._gone.done(), "the control: TLS still waits for its own"

    asyncio.run(story())


def test_a_peer_that_never_says_goodbye_in_tls_keeps_its_connection_for_a_bounded_time(
    secured: Secured,
) -> None:
    async def story() -> None:
        async with connected(secured, parting_s=SOON_S) as (peer, carrier):
            awaited = Awaited(carrier)
            reading = peer.writer.transport
            assert isinstance(reading, asyncio.Transport)
            reading.pause_reading()
            peer.say(Opcode.CLOSE, close_payload(CloseCode.NORMAL, ""))
            assert await within(awaited.receive()) is None
            await within(asyncio.shield(carrier._gone))

    asyncio.run(story())


def test_an_abort_waits_for_nobody_and_the_peer_sees_no_goodbye(secured: Secured) -> None:
    async def story() -> None:
        async with connected(secured, parting_s=TIMINGS.request_s) as (peer, carrier):
            awaited = Awaited(carrier)
            await fill(carrier)
            carrier.abort()
            assert await within(awaited.receive()) is None
            assert carrier._gone.done()
            with suppress(ConnectionError, ssl.SSLError):
                while await peer.take(1 << 20):
                    pass

    asyncio.run(story())


@pytest.mark.parametrize("goodbye", [True, False])
def test_a_peer_that_leaves_without_a_word_of_websocket_ends_it(secured: Secured, goodbye: bool) -> None:  # noqa: FBT001 -- parametrised
    """With the goodbye of TLS, and by closing its TCP connection without."""

    async def story() -> None:
        async with connected(secured) as (peer, carrier):
            awaited = Awaited(carrier)
            if goodbye:
                peer.writer.close()
            else:
                peer.writer.get_extra_info("socket").shutdown(1)
            assert await within(awaited.receive()) is None

    asyncio.run(story())
