"""What a link really does to bytes, measured by itself: a byte and a train each way, over the lines clients' bytes take.

The ends of a probe lie in this process and share its clock, so each direction's delay is measured alone. Everything
between them is what a client's bytes meet: the same sides, ways and lines, with whatever else is under way on these.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import OrderedDict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from blackstart.net.proxy_pipe import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from blackstart.core.line import Line

_AT_ONCE = 4
_KEPT = 16
_TRAIN_S = 0.1  # what a train takes at the line's rate
_SHORTEST_TRAIN = 2
_LONGEST_TRAIN = 4 * 1024 * 1024
_TRAIN_WITHOUT_RATE = 256 * 1024


class Probes:
    """The probes of one link: started by number, looked at until they are over, the last few kept."""

    def __init__(self, lines: Mapping[str, Line], join: Callable[[Side, Side], None]) -> None:
        """`join` is how the link joins two sides of its own."""
        self._lines = lines
        self._join = join
        self._started = 0
        self._running: dict[int, asyncio.Task[None]] = {}
        self._results: OrderedDict[int, dict[str, Any]] = OrderedDict()

    def start(self, *, within_s: float) -> int:
        """Begin one; its number."""
        if len(self._running) >= _AT_ONCE:
            raise ValueError(f"{_AT_ONCE} probes are on their way already; try: when one of them is over")
        self._started += 1
        number = self._started
        self._running[number] = asyncio.get_running_loop().create_task(self._run(number, within_s))
        return number

    def result(self, number: int) -> dict[str, Any] | None:
        """What it saw, or `None` while it is on its way."""
        if number in self._running:
            return None
        if number not in self._results:
            raise KeyError(f"number={number}: no such probe; the last {_KEPT} are kept")
        return self._results[number]

    def close(self) -> None:
        """End what is on its way."""
        for task in self._running.values():
            task.cancel()

    async def _run(self, number: int, within_s: float) -> None:
        seen: dict[str, Any]
        try:
            async with asyncio.timeout(within_s):
                seen = await self._measure()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            seen = {"failed": str(error) or f"not over within {within_s:g} s"}
        finally:
            del self._running[number]
        self._results[number] = seen
        while len(self._results) > _KEPT:
            self._results.popitem(last=False)

    async def _measure(self) -> dict[str, Any]:
        with ExitStack() as ends:
            near, far = await self._road(ends)
            return {
                "up": await self._passage("up", near, far),
                "down": await self._passage("down", far, near),
            }

    async def _road(self, ends: ExitStack) -> tuple[_End, _End]:
        loop = asyncio.get_running_loop()
        sides: list[Side] = []
        outer: list[_End] = []
        for _ in range(2):
            mine, its = socket.socketpair()
            ends.callback(its.close)
            ends.callback(mine.close)
            transport, end = await loop.create_connection(_End, sock=mine)
            ends.callback(transport.abort)
            transport, side = await loop.create_connection(Side, sock=its)
            ends.callback(transport.abort)
            outer.append(end)
            sides.append(side)
        self._join(*sides)
        return outer[0], outer[1]

    async def _passage(self, name: str, source: _End, target: _End) -> dict[str, Any]:
        """How long one byte takes, then how long a train does."""
        rate = self._lines[name].shape.bytes_per_s
        train = _TRAIN_WITHOUT_RATE
        if rate is not None:
            train = min(_LONGEST_TRAIN, max(_SHORTEST_TRAIN, int(rate * _TRAIN_S)))
        return {
            "byte_s": await _time(source, target, 1),
            "train_bytes": train,
            "train_s": await _time(source, target, train),
        }


async def _time(source: _End, target: _End, length: int) -> float:
    arrived = target.expect(length)
    begun = time.monotonic()
    source.send(bytes(length))
    return await arrived - begun


class _End(asyncio.Protocol):
    """One end of a probe: notes when the last of so many bytes came in."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._missing = 0
        self._arrived: asyncio.Future[float] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def expect(self, length: int) -> asyncio.Future[float]:
        """The time, on the monotonic clock, at which so many more bytes will have come."""
        self._missing = length
        self._arrived = asyncio.get_running_loop().create_future()
        return self._arrived

    def send(self, data: bytes) -> None:
        """Towards the other end."""
        assert self._transport is not None
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._missing -= len(data)
        if self._missing <= 0 and self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(time.monotonic())

    def connection_lost(self, exc: Exception | None) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_exception(exc or ConnectionError("the probe was cut"))
