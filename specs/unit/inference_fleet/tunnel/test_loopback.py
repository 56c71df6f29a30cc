from __future__ import annotations

import asyncio

import pytest

from inference_fleet.tunnel.loopback import Parked, connect_loopback

from .linked import TIMINGS, Collector, until, within
from .services import refusing_port, service


def test_what_a_service_says_before_the_takeover_is_kept_in_order_with_its_end() -> None:
    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for word in (b"one ", b"two ", b"three"):
            writer.write(word)
            await writer.drain()

    async def story() -> None:
        async with service(speak) as port:
            transport = await connect_loopback("127.0.0.1", port, within_s=TIMINGS.backend_connect_s)
            parked = transport.get_protocol()
            assert isinstance(parked, Parked)
            seen = Collector()
            parked.release(seen)
            await within(seen.eof)
            assert bytes(seen.data) == b"one two three"
            transport.abort()
            await within(seen.lost)

    asyncio.run(story())


def test_a_parked_connection_holds_a_talkative_service_back() -> None:
    sent = [0]

    async def pour(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(bytes(100_000))
            await writer.drain()
            sent[0] += 100_000

    async def story() -> None:
        async with service(pour) as port:
            transport = await connect_loopback("127.0.0.1", port, within_s=TIMINGS.backend_connect_s)
            await until(lambda: sent[0] > 0)
            parked, seen = transport.get_protocol(), Collector()
            assert isinstance(parked, Parked)
            assert not transport.is_reading(), "what comes before the takeover is left to the kernel"
            parked.release(seen)
            await until(lambda: len(seen.data) >= 100_000)  # the control
            transport.abort()

    asyncio.run(story())


def test_a_loss_before_the_takeover_is_told_to_the_successor() -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def story() -> None:
        async with service(silent) as port:
            transport = await connect_loopback("127.0.0.1", port, within_s=TIMINGS.backend_connect_s)
            parked, seen = transport.get_protocol(), Collector()
            assert isinstance(parked, Parked)
            transport.abort()
            await until(lambda: parked.lost is not None)
            parked.release(seen)
            assert seen.lost.done(), "the successor waits for what is gone"

    asyncio.run(story())


def test_nobody_listening_and_no_time_are_different_errors() -> None:
    async def story() -> None:
        with pytest.raises(ConnectionRefusedError):
            await connect_loopback("127.0.0.1", refusing_port(), within_s=TIMINGS.backend_connect_s)
        with pytest.raises(TimeoutError):
            await connect_loopback("127.0.0.1", refusing_port(), within_s=0)

    asyncio.run(story())
