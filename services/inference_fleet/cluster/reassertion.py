"""What a replica's living sessions and the ownership rows say about each other, settled every tick.

| the row of a session this replica holds              | is    | because                                            |
|------------------------------------------------------|-------|----------------------------------------------------|
| mine, same epoch                                     | kept  |                                                    |
| nobody's, same epoch                                 | taken | a peer swept it while this replica could not write |
| missing, or a lower epoch                            | taken | the database was restored from an older copy       |
| mine, a higher epoch                                 | left  | the session table itself supersedes it             |
| a higher epoch of anybody else, or nobody's          | lost  | the worker has moved on; the session is closed     |
| same epoch, another owner                            | lost  | the database is the arbiter                        |

The other way round, a row of mine without a session (a release that failed in an outage) departs, once it is older
than the time in which a claim becomes a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, kw_only=True)
class Reasserted:
    """The sessions by what became of them, as node id and epoch; `orphaned` are rows that had no session."""

    kept: tuple[tuple[str, int], ...] = ()
    retaken: tuple[tuple[str, int], ...] = ()
    lost: tuple[tuple[str, int], ...] = ()
    orphaned: tuple[tuple[str, int], ...] = ()


class Assertion(Enum):
    """One session against its row."""

    KEPT = "kept"
    TAKEN = "taken"
    LEFT = "left"
    LOST = "lost"


def judge_assertion(*, me: str, epoch: int, row_owner: str | None, row_epoch: int | None) -> Assertion:
    """The table above; `row_owner` and `row_epoch` are None for a missing row."""
    if row_epoch is None or row_owner is None or row_epoch < epoch:
        return Assertion.TAKEN
    if row_owner == me:
        return Assertion.KEPT if row_epoch == epoch else Assertion.LEFT
    if row_owner == "" and row_epoch == epoch:
        return Assertion.TAKEN
    return Assertion.LOST


READ_HELD = "SELECT node_id, owner, epoch FROM connections WHERE node_id = ANY(%(nodes)s)"

# The condition stands in the write again: what moved on since the reading is left alone.
RETAKE = """
INSERT INTO connections AS c (node_id, owner, epoch, connected_at)
SELECT t.node_id, %(me)s, t.epoch, clock_timestamp()
FROM unnest(%(nodes)s::text[], %(epochs)s::bigint[]) AS t (node_id, epoch) ORDER BY t.node_id
ON CONFLICT (node_id) DO UPDATE
SET owner = %(me)s, epoch = excluded.epoch, connected_at = clock_timestamp(), disconnected_at = NULL
WHERE (c.owner = '' AND c.epoch = excluded.epoch) OR c.epoch < excluded.epoch
RETURNING c.node_id
"""

DEPART_ORPHANS = """
UPDATE connections SET owner = '', disconnected_at = clock_timestamp()
WHERE owner = %(me)s AND owner <> '' AND NOT node_id = ANY(%(nodes)s)
  AND connected_at < statement_timestamp() - %(settling)s::interval
RETURNING node_id, epoch
"""
