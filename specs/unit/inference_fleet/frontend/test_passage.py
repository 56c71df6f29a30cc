"""One request's own tasks: whichever way it ends, none of them is there afterwards."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, cast

import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS

from inference_fleet.frontend.errors import ApiError
from inference_fleet.frontend.passage import Passage
from inference_fleet.settings import Deadline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Message

    from inference_fleet.frontend.placement import Placed
    from inference_fleet.frontend.replica import Replica


@asynccontextmanager
async def refused(watching: asyncio.Event) -> AsyncIterator[Placed]:
    """A placement that fails once the client is being watched."""
    await watching.wait()
    if watching.is_set():
        raise ApiError("no_route", "nobody has it")
    yield cast("Placed", None)


@asynccontextmanager
async def never() -> AsyncIterator[Placed]:
    """A placement that would go on for ever."""
    await asyncio.Event().wait()
    yield cast("Placed", None)


async def send(message: Message) -> None:
    raise AssertionError(f"nothing was to be sent: {message}")


def passage(place: object) -> Passage:
    return Passage(
        cast("Replica", None),  # asked for nothing before a placement
        place=place,  # type: ignore[arg-type]  # one of the two above
        path="/v1/chat/completions",
        body=b"{}",
        headers={},
        deadline=Deadline.after(TIMINGS.request_s),
    )


def test_no_task_outlives_a_request_that_failed() -> None:
    async def story() -> None:
        watching = asyncio.Event()

        async def receive() -> Message:
            watching.set()
            await asyncio.Event().wait()  # a client that stays
            raise AssertionError

        before = asyncio.all_tasks()
        with pytest.raises(ApiError, match="nobody has it"):
            await passage(refused(watching))({}, receive, send)
        assert watching.is_set(), "the control: the client was being watched"
        assert asyncio.all_tasks() == before, "a task outlives its request"

    asyncio.run(story())


def test_no_task_outlives_a_client_that_left() -> None:
    async def story() -> None:
        async def receive() -> Message:
            return {"type": "http.disconnect"}

        before = asyncio.all_tasks()
        await passage(never())({}, receive, send)
        assert asyncio.all_tasks() == before, "a task outlives its client"

    asyncio.run(story())
