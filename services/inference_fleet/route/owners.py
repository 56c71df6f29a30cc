"""Who holds a node's tunnel, asked for many askers by few statements: one statement a stream is what a relay spends most on.

Nobody gets an answer that is older than its question: who asks while statements run waits for one that is yet to be sent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from inference_fleet.cluster import Owner

AT_ONCE = 2
"""Statements under way; a second one, so that an asker need not wait for all of a slow one."""


class OwnersTogether:
    """Batches concurrent questions about owners into the next statement (a data loader without a cache).

    What the statement raises is raised to each asker it was sent for. An asker that gives up ends its own wait alone.
    """

    def __init__(self, read: Callable[[Sequence[str]], Awaitable[Mapping[str, Owner]]]) -> None:
        """`read` asks about several nodes at once and leaves out those that nobody holds (`cluster.Registry.owners`)."""
        self._read = read
        self._next: dict[str, asyncio.Future[Owner | None]] = {}
        self._under_way = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def owner(self, node_id: str) -> Owner | None:
        """The live replica recorded as owner, or None; read after this was called."""
        answer = self._next.get(node_id)
        if answer is None:
            answer = self._next[node_id] = asyncio.get_running_loop().create_future()
            if self._under_way < AT_ONCE:
                self._under_way += 1
                task = asyncio.create_task(self._ask_until_nobody_waits())
                self._tasks.add(task)  # a loop keeps no task alive by itself
                task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(answer)

    async def _ask_until_nobody_waits(self) -> None:
        try:
            await self._ask_for_who_waits()
        finally:
            # in the same turn as the look that found nobody: whoever comes next must see that nobody asks for it
            self._under_way -= 1

    async def _ask_for_who_waits(self) -> None:
        while self._next:
            asked, self._next = self._next, {}
            try:
                owners = await self._read(list(asked))
            except Exception as error:  # noqa: BLE001 - whatever it is, the askers are told
                for answer in asked.values():
                    answer.set_exception(error)
                    answer.exception()  # all who asked may have given up, and then nobody looks
            else:
                for node_id, answer in asked.items():
                    answer.set_result(owners.get(node_id))
