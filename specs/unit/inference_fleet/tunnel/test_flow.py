"""Windows on a link with a real distance, and what is left when such a link goes dead: real carriers over real TCP."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from specs.unit.blackstart.net.conftest import Rig, rig
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from blackstart.core.shape import Shape
from blackstart.net.proxy_link import Link
from inference_fleet.tunnel import Limits, Session, SessionDead, dial_websocket
from inference_fleet.tunnel.frontend import carrier_of

from .linked import PROTOCOL, TIMINGS, Collector, serve, until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.websockets import WebSocket

    from inference_fleet.tunnel import Ending, Stream

__all__ = ["rig"]

MIB = 1024 * 1024
WAN = Shape.mbit(200, delay_s=0.025)  # 50 ms there and back
TRANSFER = 72 * MIB
"""Three seconds of the link: growing takes less than half of one."""
PLAIN_TRANSFER, SHORT_TRANSFER = 12 * MIB, 2 * MIB
"""Enough to know the rate of the link by, and one of a tenth of it."""
LATE_S = TIMINGS.keepalive_timeout_s / 2
"""What a busy machine may add to the liveness time, and a liveness time twice as long would pass."""
NO_GROWTH = Limits(growth_pool=1)
OF_WHAT_IT_CARRIES, WITHOUT_GROWTH, LOOKS = 0.8, 0.4, 3
"""In reckoned time, where no machine is busy, it is `yamux/test_distance.py`."""


class Counter(asyncio.Protocol):
    """Counts to a total."""

    def __init__(self, total: int) -> None:
        self.left = total
        self.done = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.left -= len(data)
        if self.left <= 0 and not self.done.done():
            self.done.set_result(asyncio.get_running_loop().time())


class Pump(asyncio.Protocol):
    """Writes as fast as its transport lets it."""

    def __init__(self) -> None:
        self._room = asyncio.Event()
        self._room.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    async def pour(self, transport: asyncio.WriteTransport, total: int) -> None:
        chunk = bytes(64 * 1024)
        for _ in range(total // len(chunk)):
            await self._room.wait()
            transport.write(chunk)


async def _rate(transport: asyncio.WriteTransport, pump: Pump, counter: Counter, total: int) -> float:
    begun = asyncio.get_running_loop().time()
    async with asyncio.timeout(TIMINGS.request_s):
        await pump.pour(transport, total)
        ended: float = await counter.done
    return total / (ended - begun)


class Pair:
    """Both ends of a tunnel that crosses a link."""

    def __init__(self, client: Session, server: Session, link: Link) -> None:
        self.client, self.server, self.link = client, server, link


@asynccontextmanager
async def across(
    rig: Rig, *, limits: Limits | None = None, shape: Shape | None = None
) -> AsyncIterator[Pair]:
    """The dialling end reaches the server by way of a link; both ends serve streams, which wait for the spec."""
    came: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
    over: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()

    over_here = asyncio.Event()

    async def wait(_stream: Stream) -> None:
        await over_here.wait()

    async def route(websocket: WebSocket) -> None:
        await websocket.accept(subprotocol=PROTOCOL)
        carrier = carrier_of(websocket, stall_s=TIMINGS.write_stall_s)
        session = Session(carrier, client=False, timings=TIMINGS, limits=limits, on_stream=wait)
        came.set_result(session)
        over.set_result(await session.run())

    async with serve(Starlette(routes=[WebSocketRoute("/tunnel", route)])) as url:
        with Link(rig.spawner, rig.run, target_port=int(url.rpartition(":")[2])) as link:
            if shape is not None:
                link.slow(up=shape, down=shape)
            carrier, _ = await dial_websocket(
                f"http://127.0.0.1:{link.port}/tunnel", subprotocol=PROTOCOL, headers={}, timings=TIMINGS
            )
            client = Session(carrier, client=True, timings=TIMINGS, limits=limits, on_stream=wait)
            run = asyncio.create_task(client.run())
            try:
                yield Pair(client, await came, link)
            finally:
                over_here.set()
                await client.close()
                await run
                await over


async def _tunnel_rate(rig: Rig, direction: str, total: int, limits: Limits | None) -> float:
    async with across(rig, limits=limits, shape=WAN) as pair:
        sender, receiver = (pair.client, pair.server) if direction == "up" else (pair.server, pair.client)
        stream, pump, counter = sender.open_stream(), Pump(), Counter(total)
        stream.set_protocol(pump)
        await until(lambda: stream.id in receiver._streams)
        receiver._streams[stream.id].set_protocol(counter)
        rate = await _rate(stream, pump, counter, total)
        stream.abort()
        return rate


async def _carried(rig: Rig, total: int) -> float:
    """What a plain TCP connection gets through the same link."""
    loop = asyncio.get_running_loop()
    counter, pump = Counter(total), Pump()
    server = await loop.create_server(lambda: counter, "127.0.0.1", 0)
    async with server:
        with Link(rig.spawner, rig.run, target_port=server.sockets[0].getsockname()[1]) as link:
            link.slow(up=WAN, down=WAN)
            transport, _ = await loop.create_connection(lambda: pump, "127.0.0.1", link.port)
            try:
                return await _rate(transport, pump, counter, total)
            finally:
                transport.abort()
                await asyncio.sleep(0)


@pytest.mark.holds("B-36", "B-67")
@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_transfer_over_a_distant_link_uses_what_it_carries_because_its_window_grows(
    rig: Rig, direction: str
) -> None:
    async def story() -> tuple[float, float, float]:
        fixed = await _tunnel_rate(rig, direction, SHORT_TRANSFER, NO_GROWTH)
        for _ in range(LOOKS):  # the best of some: a machine that stands still takes from a rate
            carried = await _carried(rig, PLAIN_TRANSFER)
            grown = await _tunnel_rate(rig, direction, TRANSFER, None)
            if grown >= OF_WHAT_IT_CARRIES * carried:
                break
        return carried, grown, fixed

    carried, grown, fixed = asyncio.run(story())
    told = f"plain TCP {carried / MIB:.1f} MiB/s, windows that grow {grown / MIB:.1f}, that stay {fixed / MIB:.1f}"
    print(told)  # noqa: T201  # the figures beside the verdict
    assert fixed <= WITHOUT_GROWTH * carried, f"the control: the link is no distant one; {told}"
    assert grown >= OF_WHAT_IT_CARRIES * carried, f"too little of what the link carries; {told}"


@pytest.mark.holds("T-19")
def test_once_a_link_is_dead_neither_end_keeps_a_stream_the_other_has_dropped(rig: Rig) -> None:
    async def story() -> None:
        async with across(rig) as pair:
            seen = [Collector() for _ in range(3)]
            ours, theirs = pair.client.open_stream(), pair.server.open_stream()
            ended = pair.server.open_stream()
            for stream, collector in zip((ours, theirs, ended), seen, strict=True):
                stream.set_protocol(collector)
            await until(lambda: (pair.client.streams_open, pair.server.streams_open) == (3, 3))
            pair.link.blackhole()
            dead_at = asyncio.get_running_loop().time()
            ended.abort()
            assert (pair.client.streams_open, pair.server.streams_open) == (3, 2), "one end has dropped one"
            errors = await within(asyncio.gather(seen[0].lost, seen[1].lost))
            assert isinstance(errors, list)
            assert [type(error) for error in errors] == [SessionDead, SessionDead]
            await until(lambda: (pair.client.streams_open, pair.server.streams_open) == (0, 0))
            took_s = asyncio.get_running_loop().time() - dead_at
            liveness_s = TIMINGS.keepalive_interval_s + TIMINGS.keepalive_timeout_s
            assert took_s <= liveness_s + LATE_S, f"noticed after {took_s:.2f} s, due within {liveness_s:g} s"

    asyncio.run(story())
