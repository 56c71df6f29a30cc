"""The small moves every ASGI application here is made of."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from inference_fleet.backends.asgi import DRAIN_LIMIT, BodyTooLarge, ClientGone, read_body, while_connected
from inference_fleet.settings import Timings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

TIMINGS = Timings.drill()


def receiving(*events: dict[str, Any]) -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
    """A `receive` that gives these events and then waits for ever."""
    waiting = list(events)

    async def receive() -> MutableMapping[str, Any]:
        if not waiting:
            await asyncio.Event().wait()
        return waiting.pop(0)

    return receive


def part(body: bytes, *, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


GONE = {"type": "http.disconnect"}


def test_a_body_is_joined_from_its_parts_up_to_its_limit() -> None:
    async def story() -> None:
        assert await read_body(receiving(part(b"ab", more=True), part(b"c")), limit=3) == b"abc"
        with pytest.raises(BodyTooLarge, match="3 bytes"):
            await read_body(receiving(part(b"ab", more=True), part(b"cd")), limit=3)
        with pytest.raises(ClientGone):
            await read_body(receiving(part(b"ab", more=True), GONE), limit=3)

    asyncio.run(story())


def test_a_body_past_its_limit_is_read_to_its_end_before_it_is_refused() -> None:
    async def story() -> None:
        rest = [part(b"cd", more=True), part(b"ef")]
        receive = receiving(part(b"ab", more=True), *rest)
        with pytest.raises(BodyTooLarge):
            await read_body(receive, limit=3)
        asked_again = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        assert not asked_again.done(), "a refused body was left unread"
        asked_again.cancel()
        endless = receiving(part(b"x" * DRAIN_LIMIT, more=True), part(b"y", more=True))
        with pytest.raises(BodyTooLarge):
            await read_body(endless, limit=3)

    asyncio.run(story())


def test_work_runs_to_its_end_while_the_client_stays() -> None:
    async def story() -> None:
        done = asyncio.Event()

        async def work() -> None:
            await asyncio.sleep(0)
            done.set()

        assert await while_connected(receiving(), work())
        assert done.is_set()

    asyncio.run(story())


def test_work_is_cancelled_when_the_client_goes() -> None:
    async def story() -> None:
        cancelled = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        watching = asyncio.create_task(while_connected(receiving(GONE), work()))
        done, _ = await asyncio.wait({watching}, timeout=TIMINGS.stream_open_s)

        assert done, f"the work is still running: {watching.cancel()}"
        assert not watching.result()
        assert cancelled.is_set()

    asyncio.run(story())


def test_what_work_raises_comes_out() -> None:
    async def story() -> None:
        async def work() -> None:
            await asyncio.sleep(0)
            raise KeyError("broken")

        with pytest.raises(KeyError, match="broken"):
            await while_connected(receiving(), work())

    asyncio.run(story())


def test_cancelling_the_caller_cancels_the_work() -> None:
    async def story() -> None:
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

        task = asyncio.create_task(while_connected(receiving(), work()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cancelled.is_set()

    asyncio.run(story())
