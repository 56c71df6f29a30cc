"""Who may hold a worker: epochs, two boots of one node, and the statements that write ownership.

An epoch comes from one sequence, is higher than any the worker has seen, and never goes back on a row. A database
restored from an older copy is behind its workers: then the sequence moves up to them, but not by more than
`EPOCH_LEAP_MAX`, since a number out of a worker's mouth must not be able to exhaust the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from inference_fleet.cluster.presence import OWNER_IS_LIVE
from inference_fleet.store import statement

if TYPE_CHECKING:
    from datetime import datetime

# A fleet of 10,000 workers that each re-dial a hundred times between two backups stays below this.
EPOCH_LEAP_MAX = 1_000_000


class EpochLeap(Exception):
    """A worker says it has seen an epoch this database cannot have given out."""

    def __init__(self, node_id: str, *, seen: int, latest: int) -> None:
        """`latest` is what the sequence stands at."""
        super().__init__(
            f"node {node_id} has seen epoch {seen}, {seen - latest} past the newest of this database ({latest}); at "
            f"most {EPOCH_LEAP_MAX} is believed; try: check that BLACKSTART_DATABASE_URL names the fleet's database, "
            "or delete the worker's state in its BLACKSTART_DATA_DIR"
        )
        self.seen = seen
        self.latest = latest


class BootConflict(Exception):
    """Another boot of the same node holds a live tunnel and the last change of hands is too recent."""

    def __init__(self, node_id: str, *, boots: tuple[str, str], retry_after_s: float) -> None:
        """`boots` is the one that holds and the one that asks."""
        super().__init__(
            f"node {node_id} is held by boot {boots[0]} and asked for by boot {boots[1]}; try: run one worker per "
            f"node credential (asking again is allowed in {retry_after_s:.1f} s)"
        )
        self.boots = boots
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, kw_only=True)
class Superseded:
    """The connection a claim took the node from; `same_boot` decides between draining it and closing it."""

    owner: str
    boot_id: str
    epoch: int
    same_boot: bool


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A node taken. `conflict` says that a different boot was connected and has lost it."""

    node_id: str
    epoch: int
    superseded: Superseded | None
    conflict: bool


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The row a claim found, locked: who holds the node and since when boots have been changing."""

    owner: str
    epoch: int
    boot_id: str
    held: bool
    owner_live: bool
    damped_for_s: float  # seconds left of the damping after the last change of boots; 0 when over
    upcoming: int  # what the next draw of the sequence gives at least; it only rises


class ClaimVerdict(Enum):
    """What a claim may do with the standing row."""

    TAKE = "take"
    CONFLICT = "conflict"
    REFUSE = "refuse"


def judge_claim(standing: Standing, boot_id: str) -> ClaimVerdict:
    """The newest claim wins; another boot over a live one is a conflict, and refused while damped."""
    if not (standing.held and standing.owner_live) or standing.boot_id in {"", boot_id}:
        return ClaimVerdict.TAKE
    return ClaimVerdict.REFUSE if standing.damped_for_s > 0 else ClaimVerdict.CONFLICT


def next_epoch(drawn: int, *, floor: int) -> int:
    """The epoch of a claim: the number drawn from the sequence, or just above everything seen before."""
    return max(drawn, floor + 1)


def leaps(floor: int, latest: int) -> bool:
    """Whether `floor` is further past the sequence than a restored database explains."""
    return floor - latest > EPOCH_LEAP_MAX


# The row a claim is serialised by; a node's first claim makes it, owned by nobody.
ENSURE_ROW = """
INSERT INTO connections (node_id, epoch) VALUES (%(node_id)s, 0) ON CONFLICT (node_id) DO NOTHING
"""

LOCK_STANDING = statement(
    """
SELECT c.owner, c.epoch, c.boot_id, c.owner <> '' AS held,
       coalesce($live, false) AS owner_live,
       coalesce(greatest(0, extract(epoch FROM
         c.boot_changed_at + %(damping)s::interval - statement_timestamp())), 0)::float8 AS damped_for_s,
       (SELECT last_value + is_called::int FROM connection_epochs) AS upcoming
FROM connections c LEFT JOIN instances i ON i.id = c.owner
WHERE c.node_id = %(node_id)s
FOR UPDATE OF c
""",
    live=OWNER_IS_LIVE,
)

# Draws share a lock and a leap excludes them, so no setval can move the sequence back over a draw.
DRAW = """
WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock_shared('connection_epochs'::regclass::oid::bigint))
SELECT nextval('connection_epochs') AS drawn FROM locked
"""
DRAW_ALONE = """
WITH locked AS MATERIALIZED (SELECT pg_advisory_xact_lock('connection_epochs'::regclass::oid::bigint))
SELECT nextval('connection_epochs') AS drawn FROM locked
"""
MOVE_SEQUENCE = "SELECT setval('connection_epochs', %(epoch)s)"

# Whoever writes an owner clears the departure in the same statement.
TAKE = """
UPDATE connections SET
  owner = %(me)s, epoch = %(epoch)s, boot_id = %(boot_id)s,
  connected_at = clock_timestamp(), disconnected_at = NULL,
  previous_boot_id = CASE WHEN %(conflict)s THEN boot_id ELSE previous_boot_id END,
  conflicts = conflicts + CASE WHEN %(conflict)s THEN 1 ELSE 0 END,
  boot_changed_at = CASE WHEN %(conflict)s THEN clock_timestamp() ELSE boot_changed_at END
WHERE node_id = %(node_id)s
"""

# The roster hears the boot that made the newest claim: a twin that registered later and died would otherwise leave a
# node whose living process is told for ever that it was superseded.
SPEAK_FOR_NODE = """
UPDATE nodes SET boot_id = %(boot_id)s WHERE id = %(node_id)s AND boot_id <> %(boot_id)s
"""

# A departure names owner and epoch, and only a held row can depart: an empty owner would match rows that
# departed long ago, and a fresh stamp would make them look freshly gone.
RELEASE = """
UPDATE connections SET owner = '', disconnected_at = clock_timestamp()
WHERE node_id = %(node_id)s AND owner = %(me)s AND epoch = %(epoch)s AND owner <> ''
"""


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A live replica that holds a worker; an empty `address` means it cannot be dialled."""

    instance_id: str
    address: str
    epoch: int


@dataclass(frozen=True, kw_only=True)
class ConnectionRow:
    """The bare row: what stands written, not who can be reached. Routes ask for the `Owner`."""

    node_id: str
    owner: str
    epoch: int
    boot_id: str
    previous_boot_id: str
    conflicts: int
    boot_changed_at: datetime | None
    connected_at: datetime | None
    disconnected_at: datetime | None


OWNERS = statement(
    """
SELECT c.node_id, c.owner AS instance_id, i.address, c.epoch
FROM connections c JOIN instances i ON i.id = c.owner
WHERE c.node_id = ANY(%(node_ids)s) AND c.owner <> '' AND $live
""",
    live=OWNER_IS_LIVE,
)

OWNER_ROW = """
SELECT node_id, owner, epoch, boot_id, previous_boot_id, conflicts, boot_changed_at, connected_at, disconnected_at
FROM connections WHERE node_id = %(node_id)s
"""
