"""Leaving many at once: nobody waits for another's peer."""

from __future__ import annotations

import asyncio

from inference_fleet.settings import Deadline
from inference_fleet.tunnel import Session, part

from .linked import TIMINGS, until
from .piped import PipeCarrier, pipe


class Reluctant(PipeCarrier):
    """Its goodbye is answered only once every other was said."""

    said: list[Reluctant]
    all_of_them = 3

    async def close(self, code: int = 1000, reason: str = "") -> None:
        self.said.append(self)
        await until(lambda: len(self.said) == self.all_of_them)
        await super().close(code, reason)


def test_goodbyes_are_said_at_once_so_that_a_silent_peer_holds_up_no_other() -> None:
    async def story() -> None:
        said: list[Reluctant] = []
        sessions = []
        for _ in range(Reluctant.all_of_them):
            carrier, other = Reluctant(), pipe()[1]
            carrier.said, carrier.other = said, other
            sessions.append(Session(carrier, client=False, timings=TIMINGS))
        running = [asyncio.create_task(session.run()) for session in sessions]
        await asyncio.sleep(0)
        assert await part(sessions, Deadline.after(TIMINGS.drain_wait_s)) is True
        causes = {(await run).cause for run in running}
        assert causes == {"closed here"}
        assert len(said) == Reluctant.all_of_them

    asyncio.run(story())
