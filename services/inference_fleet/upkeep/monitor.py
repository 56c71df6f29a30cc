"""The health monitor: one replica at a time reads every node's facts and writes what they justify.

Who that replica is says a lease row. Its epoch is checked in the write itself, together with the facts the verdicts
rest on, so neither a replica that lost the lease in a pause nor a fact that has changed since can demote anybody.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from inference_fleet.cluster import Contact
from inference_fleet.roster.frontend import NODE_FACTS, fact_windows
from inference_fleet.store import LEASE_IS_HELD, DatabaseUnavailable, Leases, statement
from inference_fleet.upkeep.verdicts import Verdict, verdicts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from inference_fleet.settings import Timings
    from inference_fleet.store import Database, LeaseGrant

_log = logging.getLogger(__name__)

LEASE_NAME = "health-monitor"

_ACT = statement(
    """
WITH fence AS MATERIALIZED ($fence), verdicts AS (
  SELECT * FROM unnest(
    %(ids)s::text[], %(befores)s::text[], %(heartbeats)s::timestamptz[], %(owners)s::text[], %(epochs)s::bigint[],
    %(afters)s::text[], %(reasons)s::text[], %(deletes)s::bool[], %(demotes)s::bool[], %(evidence)s::jsonb[]
  ) AS v (id, before, heartbeat, owner, epoch, after, reason, deletes, demotes, evidence)
), changed AS (
  UPDATE nodes n SET status = v.after, status_reason = v.reason, updated_at = clock_timestamp()
  FROM verdicts v CROSS JOIN fence
  WHERE n.id = v.id AND n.status = v.before AND n.last_heartbeat IS NOT DISTINCT FROM v.heartbeat
    AND NOT EXISTS (SELECT 1 FROM connections c
                    WHERE c.node_id = n.id AND (c.owner, c.epoch) IS DISTINCT FROM (v.owner, v.epoch))
  RETURNING n.id, n.name, v.before, v.after, v.reason, v.deletes, v.demotes, v.evidence, v.epoch
), deleted AS (
  DELETE FROM node_models m USING changed WHERE m.node_id = changed.id AND changed.deletes
  RETURNING m.node_id, m.name
), journal AS (
  INSERT INTO reaps (at, node_id, node_name, action, by, reason, evidence, epoch)
  SELECT clock_timestamp(), id, name, action, %(by)s, reason, evidence, epoch FROM (
    SELECT 1 AS place, id, name, 'demoted' AS action, reason, evidence, epoch FROM changed WHERE demotes
    UNION ALL
    SELECT 2, changed.id, changed.name, 'models-deleted', changed.reason,
           changed.evidence || jsonb_build_object('models', jsonb_agg(deleted.name ORDER BY deleted.name)),
           changed.epoch
    FROM changed JOIN deleted ON deleted.node_id = changed.id
    GROUP BY changed.id, changed.name, changed.reason, changed.evidence, changed.epoch
  ) deeds ORDER BY id, place
)
SELECT id, name, before, after, reason FROM changed ORDER BY name
""",
    fence=LEASE_IS_HELD,
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A status that a tick wrote."""

    id: str
    name: str
    before: str
    after: str
    reason: str


class HealthMonitor:
    """Ticks until it is cancelled; only the tick of the lease's holder does anything.

    A monitor that could not ask the database for so long that living workers look dead demotes nobody until they have
    had the time to speak again. `restrain` may take more verdicts away before they are written: a brake on mass events.
    """

    def __init__(
        self,
        database: Database,
        *,
        holder: str,
        timings: Timings,
        restrain: Callable[[Sequence[Verdict]], Sequence[Verdict]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`holder` signs the lease and the journal: this replica's instance id."""
        self._database = database
        self._leases = Leases(database)
        self._holder = holder
        self._timings = timings
        self._restrain = restrain
        self._clock = clock
        self._contact = Contact(
            longest_gap_s=timings.heartbeat_stale_s - timings.heartbeat_s, doubt_s=timings.heartbeat_stale_s
        )
        self._grant: LeaseGrant | None = None
        self._out_since: float | None = None

    async def run(self) -> None:
        """Tick every `health_tick_s` until cancelled. A failed reading is no verdict: the tick did nothing."""
        while True:
            try:
                await self.tick()
            except DatabaseUnavailable as error:
                if self._out_since is None:
                    self._out_since = self._clock()
                    _log.error("health monitor reads nothing and so judges nobody: %s", error)
            else:
                if self._out_since is not None:
                    _log.warning("health monitor reads again after %.1f s", self._clock() - self._out_since)
                    self._out_since = None
            await asyncio.sleep(self._timings.health_tick_s)

    async def tick(self) -> list[Change]:
        """Read every node's facts in one statement and write what they justify; empty where nothing changed."""
        grant = await self._hold()
        believes = self._contact.made(self._clock())
        if grant is None:
            return []
        async with self._database.transaction() as connection:
            cursor = await connection.execute(NODE_FACTS, fact_windows(self._timings))
            verdicts: Sequence[Verdict] = verdicts_of(await cursor.fetchall())
            if not believes:
                verdicts = [verdict for verdict in verdicts if not verdict.demotes]
            if self._restrain is not None:
                verdicts = self._restrain(verdicts)
            if not verdicts:
                return []
            cursor = await connection.execute(_ACT, self._parameters(grant, verdicts))
            changes = [Change(**row) for row in await cursor.fetchall()]
        for change in changes:
            _log.warning(
                "node status changed: node=%s name=%s %s -> %s (%s)",
                change.id,
                change.name,
                change.before,
                change.after,
                change.reason or "recovered",
            )
        return changes

    async def stand_down(self) -> None:
        """Give the lease back, so another replica need not wait for it to expire."""
        if self._grant is not None:
            grant, self._grant = self._grant, None
            await self._leases.release(grant)

    async def _hold(self) -> LeaseGrant | None:
        ttl_s = self._timings.health_lease_s
        if self._grant is None or not await self._leases.renew(self._grant, ttl_s):
            self._grant = await self._leases.acquire(LEASE_NAME, self._holder, ttl_s)
        return self._grant

    def _parameters(self, grant: LeaseGrant, verdicts: Sequence[Verdict]) -> dict[str, Any]:
        return {
            **grant.parameters,
            "by": self._holder,
            "ids": [verdict.node_id for verdict in verdicts],
            "befores": [verdict.before.value for verdict in verdicts],
            "heartbeats": [verdict.last_heartbeat for verdict in verdicts],
            "owners": [verdict.owner for verdict in verdicts],
            "epochs": [verdict.epoch for verdict in verdicts],
            "afters": [verdict.judgement.status.value for verdict in verdicts],
            "reasons": [verdict.judgement.reason for verdict in verdicts],
            "deletes": [verdict.judgement.delete_models for verdict in verdicts],
            "demotes": [verdict.demotes for verdict in verdicts],
            "evidence": [Jsonb(dict(verdict.evidence)) for verdict in verdicts],
        }
