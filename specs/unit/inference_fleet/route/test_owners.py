"""Many askers, few statements, and no answer older than its question."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from inference_fleet.cluster import Owner
from inference_fleet.route import OwnersTogether
from inference_fleet.route.owners import AT_ONCE
from inference_fleet.store import DatabaseUnavailable

from .piped import TIMINGS

if TYPE_CHECKING:
    from collections.abc import Sequence


class Table:
    """The ownership table: each statement waits for its own answer, which a spec gives when it likes."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[str], asyncio.Future[dict[str, Owner]]]] = []

    async def read(self, node_ids: Sequence[str]) -> dict[str, Owner]:
        answer: asyncio.Future[dict[str, Owner]] = asyncio.get_running_loop().create_future()
        self.sent.append((list(node_ids), answer))
        return await answer

    def says(self, number: int, epoch: int) -> None:
        """Answers one statement: every node it asks about but `nobodys` is held, at this epoch."""
        nodes, answer = self.sent[number]
        answer.set_result(
            {node: Owner(instance_id="b", address="b:80", epoch=epoch) for node in nodes if node != "nobodys"}
        )

    @property
    def asked(self) -> list[list[str]]:
        return [nodes for nodes, _ in self.sent]


async def turns() -> None:
    """Everything that can go on without an answer has."""
    for _ in range(8):
        await asyncio.sleep(0)


async def epoch(asking: asyncio.Task[Owner | None]) -> int | None:
    async with asyncio.timeout(TIMINGS.stream_open_s):
        owner = await asking
    return None if owner is None else owner.epoch


def test_who_asks_while_statements_run_shares_the_next_one_and_hears_nothing_older() -> None:
    async def story() -> None:
        table = Table()
        together = OwnersTogether(table.read)

        async def ask(node_id: str) -> asyncio.Task[Owner | None]:
            asking = asyncio.create_task(together.owner(node_id))
            await turns()
            return asking

        early = [await ask("n1") for _ in range(AT_ONCE)]
        assert table.asked == [["n1"]] * AT_ONCE, "an asker waited though a statement could be sent"
        late = [await ask(node) for node in ("n1", "n2", "n1", "nobodys")]
        assert table.asked == [["n1"]] * AT_ONCE, "every asker sends a statement of its own"

        table.says(0, epoch=1)
        await turns()
        assert not any(asking.done() for asking in late), "an answer is older than its question"
        assert table.asked[AT_ONCE:] == [["n1", "n2", "nobodys"]]
        table.says(AT_ONCE, epoch=2)
        assert [await epoch(asking) for asking in late] == [2, 2, 2, None]
        table.says(1, epoch=1)
        assert [await epoch(asking) for asking in early] == [1, 1]
        assert len(table.sent) == AT_ONCE + 1, "a statement is sent that nobody waits for"

    asyncio.run(story())


def test_an_outage_is_told_to_those_it_was_asked_for_and_the_next_are_asked_for_anew() -> None:
    async def story() -> None:
        table = Table()
        together = OwnersTogether(table.read)
        asking = [asyncio.create_task(together.owner("n1")) for _ in range(3)]
        await turns()
        table.sent[0][1].set_exception(DatabaseUnavailable("out"))
        done, waiting = await asyncio.wait(asking, timeout=TIMINGS.stream_open_s)
        assert not waiting, "an outage leaves askers waiting"
        assert {type(each.exception()) for each in done} == {DatabaseUnavailable}

        again = asyncio.create_task(together.owner("n1"))
        await turns()
        table.says(1, epoch=3)
        assert await epoch(again) == 3

    asyncio.run(story())


def test_an_asker_that_gives_up_ends_its_own_wait_alone() -> None:
    async def story() -> None:
        table = Table()
        together = OwnersTogether(table.read)
        gives_up, waits = (asyncio.create_task(together.owner("n1")) for _ in range(2))
        await turns()
        gives_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gives_up
        assert not waits.done(), "one asker's end was another's"
        table.says(0, epoch=1)
        assert await epoch(waits) == 1

    asyncio.run(story())


def test_who_asks_in_the_moment_a_statement_has_been_answered_is_asked_for() -> None:
    async def story() -> None:
        table = Table()
        answered = asyncio.get_running_loop().create_future()

        async def read(node_ids: Sequence[str]) -> dict[str, Owner]:
            if "at-once" in node_ids:
                answered.set_result(
                    None
                )  # who waits for this runs before anything that the end of a task brings
                return {}
            return await table.read(node_ids)

        together = OwnersTogether(read)

        async def late() -> Owner | None:
            await answered
            return await together.owner("late")

        slow = [asyncio.create_task(together.owner(f"slow-{number}")) for number in range(AT_ONCE - 1)]
        await turns()
        asking = asyncio.create_task(late())
        assert await together.owner("at-once") is None
        await turns()
        assert table.asked[len(slow) :] == [["late"]], "nobody asks for who came in that moment"
        for number in range(len(table.sent)):
            table.says(number, epoch=1)
        assert [await epoch(each) for each in (*slow, asking)] == [1] * AT_ONCE

    asyncio.run(story())
