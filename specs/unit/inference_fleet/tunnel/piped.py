"""Carriers in memory: two joined by queues, that can be cut, stopped or made to leave half open."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inference_fleet.settings import Timings
from inference_fleet.tunnel import Ending, Session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from inference_fleet.tunnel import Joint, Limits, Notices, Stream

    OnStream = Callable[[Stream], Awaitable[Joint | None]]

TIMINGS = Timings.drill()


class PipeCarrier:
    """One end of a pair. `silent` swallows what is sent (a half-open link), `stuck` never takes it."""

    path = "memory"

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.other: PipeCarrier
        self.silent = False
        self.stuck = False
        self.aborted = False
        self.closed: tuple[int, str] | None = None
        self.sent = bytearray()

    async def receive(self) -> bytes | None:
        return await self.inbox.get()

    async def send(self, data: bytes) -> None:
        if self.aborted or self.closed is not None:
            raise ConnectionResetError("the pipe is closed")
        if self.stuck:
            await asyncio.Event().wait()
        self.sent += data
        if not self.silent:
            self.other.inbox.put_nowait(data)

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self.closed = (code, reason)
        if not self.silent:
            self.other.inbox.put_nowait(None)

    def abort(self) -> None:
        self.aborted = True
        if not self.silent:
            self.other.inbox.put_nowait(None)


def pipe() -> tuple[PipeCarrier, PipeCarrier]:
    """Two joined carriers."""
    left, right = PipeCarrier(), PipeCarrier()
    left.other, right.other = right, left
    return left, right


@dataclass
class Piped:
    """Both ends of a session over a pipe, running."""

    client: Session
    server: Session
    client_carrier: PipeCarrier
    server_carrier: PipeCarrier
    client_run: asyncio.Task[Ending]
    server_run: asyncio.Task[Ending]


@asynccontextmanager
async def piped(
    *,
    on_client_stream: OnStream | None = None,
    on_server_stream: OnStream | None = None,
    timings: Timings = TIMINGS,
    limits: Limits | None = None,
    client_notices: Notices | None = None,
    server_notices: Notices | None = None,
) -> AsyncIterator[Piped]:
    """A session over memory; both ends end with the block."""
    left, right = pipe()
    client = Session(
        left,
        client=True,
        timings=timings,
        limits=limits,
        on_stream=on_client_stream,
        notices=client_notices,
    )
    server = Session(
        right,
        client=False,
        timings=timings,
        limits=limits,
        on_stream=on_server_stream,
        notices=server_notices,
    )
    runs = [asyncio.create_task(session.run()) for session in (client, server)]
    await asyncio.sleep(0)  # both have begun to run
    try:
        yield Piped(client, server, left, right, *runs)
    finally:
        left.stuck = right.stuck = False
        await client.close()
        await server.close()
        await asyncio.gather(*runs, return_exceptions=True)
