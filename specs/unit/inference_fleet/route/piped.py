"""Two carriers joined in memory, and a wait, for specs of what runs over real sessions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from inference_fleet.settings import Timings

if TYPE_CHECKING:
    from collections.abc import Callable

TIMINGS = Timings.drill()


async def until(
    probe: Callable[[], Any], why: str = "it never became true", *, within_s: float = TIMINGS.start_s
) -> Any:
    """Look until the probe gives something true, and fail with `why` when it never does; it may be a coroutine function."""
    try:
        async with asyncio.timeout(within_s):
            while True:
                seen = probe()
                if asyncio.iscoroutine(seen):
                    seen = await seen
                if seen:
                    return seen
                await asyncio.sleep(TIMINGS.reconnect_backoff_min_s / 5)
    except TimeoutError:
        late = f"{why} (within {within_s:g} s)"
    raise AssertionError(late)


class PipeCarrier:
    """One end: what the other sends is received here, in whole messages."""

    path = "asgi"

    def __init__(self, incoming: asyncio.Queue[bytes | None], outgoing: asyncio.Queue[bytes | None]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._over = False

    async def receive(self) -> bytes | None:
        if self._over:
            return None
        return await self._incoming.get()

    async def send(self, data: bytes) -> None:
        if self._over:
            raise ConnectionResetError("the pipe is closed")
        self._outgoing.put_nowait(data)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        del code, reason
        self.abort()

    def abort(self) -> None:
        if not self._over:
            self._over = True
            self._outgoing.put_nowait(None)
            self._incoming.put_nowait(None)


def pipe() -> tuple[PipeCarrier, PipeCarrier]:
    """The near and the far end."""
    left: asyncio.Queue[bytes | None] = asyncio.Queue()
    right: asyncio.Queue[bytes | None] = asyncio.Queue()
    return PipeCarrier(left, right), PipeCarrier(right, left)
