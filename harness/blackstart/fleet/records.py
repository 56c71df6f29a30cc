"""What the fleet's own database says, asked through the very code the replicas ask it with.

An owner read by a second statement of the harness's own would agree with itself, not with production. So the question
goes through `Registry.owner`; only the raw row, which production never shows to anybody, has a statement here.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from blackstart.core.closing import Closing
from inference_fleet.cluster import Registry
from inference_fleet.store import Database

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from inference_fleet.cluster import Owner, Presence
    from inference_fleet.settings import Timings

_T = TypeVar("_T")


class Records(Closing):
    """One connection to the fleet's database, usable from any thread; a loop of its own runs underneath."""

    def __init__(self, url: str, *, timings: Timings) -> None:
        self._within = timings.database_connect_s + timings.database_statement_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="blackstart-records", daemon=True)
        self._thread.start()
        try:
            self._database = self._call(Database.open(url, timings=timings, name="blackstart-records"))
        except BaseException:
            self._stop()
            raise
        self._registry = Registry(
            self._database, instance_id="blackstart-harness", boot_id="blackstart-harness", timings=timings
        )

    def owner(self, node_id: str) -> Owner | None:
        """The production answer: the live replica that holds the node's tunnel, or None."""
        return self._call(self._registry.owner(node_id))

    def presence(self, node_id: str) -> Presence:
        """The production answer to whether anybody can reach the node."""
        return self._call(self._registry.presence(node_id))

    def owner_row(self, node_id: str) -> dict[str, Any] | None:
        """The ownership row as it lies there, the owner dead or alive."""
        rows = self.rows("SELECT * FROM connections WHERE node_id = %(node)s", node=node_id)
        return rows[0] if rows else None

    def rows(self, query: str, **values: Any) -> list[dict[str, Any]]:
        """The rows of one statement of a spec's own."""
        return self._call(self._rows(query, values))

    def close(self) -> None:
        """Close the connection and end the loop; a second time is fine."""
        if not self._loop.is_closed():
            try:
                self._call(self._database.close())
            finally:
                self._stop()

    async def _rows(self, query: str, values: dict[str, Any]) -> list[dict[str, Any]]:
        async with self._database.connection() as connection:
            cursor = await connection.execute(query.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(self._within)
        except TimeoutError:
            future.cancel()
            raise

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(self._within)
        self._loop.close()
