"""The replicas: their rows, their heartbeat, and the departures a dead one leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from inference_fleet.cluster.presence import OWNER_IS_LIVE
from inference_fleet.store import statement

if TYPE_CHECKING:
    from datetime import datetime


class InstanceIdTaken(Exception):
    """Another process registered under this replica's id after it did."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """One replica; an empty `address` is one that is present but cannot be dialled."""

    id: str
    address: str
    boot_id: str
    started_at: datetime
    last_seen: datetime
    live: bool


# A restarted replica holds nothing: what a process of another boot held under this id departs now.
DEPART_PREDECESSOR = """
UPDATE connections SET owner = '', disconnected_at = clock_timestamp()
WHERE owner = %(me)s AND owner <> ''
  AND NOT EXISTS (SELECT 1 FROM instances WHERE id = %(me)s AND boot_id = %(boot_id)s)
"""

REGISTER = """
INSERT INTO instances AS old (id, address, boot_id, started_at, last_seen)
VALUES (%(me)s, %(address)s, %(boot_id)s, clock_timestamp(), clock_timestamp())
ON CONFLICT (id) DO UPDATE SET
  address = excluded.address, boot_id = excluded.boot_id, last_seen = clock_timestamp(),
  started_at = CASE WHEN old.boot_id = excluded.boot_id THEN old.started_at ELSE clock_timestamp() END
"""

HEARTBEAT = "UPDATE instances SET last_seen = clock_timestamp() WHERE id = %(me)s AND boot_id = %(boot_id)s"

# A row that peers swept while this replica could not write comes back; somebody else's row stays theirs.
REVIVE = """
INSERT INTO instances (id, address, boot_id, started_at, last_seen)
VALUES (%(me)s, %(address)s, %(boot_id)s, clock_timestamp(), clock_timestamp())
ON CONFLICT (id) DO NOTHING
"""

# Leaving: only the process that wrote the instance row may clear what stands under its id.
DEPART_OWN = """
UPDATE connections SET owner = '', disconnected_at = clock_timestamp()
WHERE owner = %(me)s AND owner <> ''
  AND EXISTS (SELECT 1 FROM instances WHERE id = %(me)s AND boot_id = %(boot_id)s)
RETURNING node_id
"""
UNREGISTER = "DELETE FROM instances WHERE id = %(me)s AND boot_id = %(boot_id)s"

LIST = statement(
    "SELECT i.id, i.address, i.boot_id, i.started_at, i.last_seen, $live AS live FROM instances i ORDER BY i.id",
    live=OWNER_IS_LIVE,
)

# The sweep records departures and forgets nobody: a row keeps its epoch and ages from here. It names owner and epoch
# again in the write, so a claim that arrives in between keeps what it took; and it looks at held rows only, so a
# departed row is never stamped again and can age out. A row that somebody is writing at this moment is skipped: two
# replicas that sweep the same dead one never wait for each other, in whatever order they come upon the rows.
DEPART_DEAD = statement(
    """
WITH dead AS (
  SELECT c.node_id, c.owner, c.epoch FROM connections c LEFT JOIN instances i ON i.id = c.owner
  WHERE c.owner <> '' AND NOT coalesce($live, false)
  FOR UPDATE OF c SKIP LOCKED
)
UPDATE connections c SET owner = '', disconnected_at = clock_timestamp()
FROM dead WHERE c.node_id = dead.node_id AND c.owner = dead.owner AND c.epoch = dead.epoch AND c.owner <> ''
RETURNING c.node_id, dead.owner
""",
    live=OWNER_IS_LIVE,
)
DELETE_DEAD = statement(
    """
DELETE FROM instances WHERE id IN (SELECT i.id FROM instances i WHERE NOT ($live) FOR UPDATE SKIP LOCKED) RETURNING id
""",
    live=OWNER_IS_LIVE,
)

# The only place a departed row is deleted.
PURGE = """
DELETE FROM connections WHERE node_id IN (
  SELECT node_id FROM connections
  WHERE owner = '' AND disconnected_at < statement_timestamp() - %(retention)s::interval
  FOR UPDATE SKIP LOCKED
)
RETURNING node_id
"""


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What a sweep did: `cleared` counts connection rows that departed and stay, `deleted` instances that are no more.

    A cleared row is not a forgotten worker: it may be dialling another replica at this moment.
    """

    cleared: tuple[tuple[str, str], ...]  # node id, dead owner
    deleted: tuple[str, ...]
