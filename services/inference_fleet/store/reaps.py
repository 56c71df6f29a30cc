"""The reap journal: every demotion and deletion is a row with who, why, on which evidence and at which epoch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from inference_fleet.store.database import Connection, Database

MOST_REAPS = 1000


class ReapAction(StrEnum):
    """What was done to a node or to something of it."""

    DEMOTED = "demoted"
    MODELS_DELETED = "models-deleted"
    MODEL_DELETED = "model-deleted"
    CREDENTIAL_REPLACED = "credential-replaced"
    DEREGISTERED = "deregistered"


@dataclass(frozen=True, kw_only=True)
class Reap:
    """One row of the journal; `epoch` is that of the node's connection when it was judged."""

    id: int
    at: datetime
    node_id: str
    node_name: str
    action: str
    by: str
    reason: str
    evidence: Mapping[str, Any]
    epoch: int | None


_RECORD = """
INSERT INTO reaps (at, node_id, node_name, action, by, reason, evidence, epoch)
VALUES (clock_timestamp(), %(node_id)s, %(node_name)s, %(action)s, %(by)s, %(reason)s, %(evidence)s, %(epoch)s)
"""

_LIST = """
SELECT id, at, node_id, node_name, action, by, reason, evidence, epoch FROM reaps
WHERE %(node_id)s::text IS NULL OR node_id = %(node_id)s
ORDER BY id DESC LIMIT %(limit)s
"""


async def record_reap(
    connection: Connection,
    *,
    node_id: str,
    node_name: str,
    action: ReapAction,
    by: str,
    reason: str,
    evidence: Mapping[str, Any],
    epoch: int | None = None,
) -> None:
    """Write one row, in the transaction that does the deed."""
    await connection.execute(
        _RECORD,
        {
            "node_id": node_id,
            "node_name": node_name,
            "action": action.value,
            "by": by,
            "reason": reason,
            "evidence": Jsonb(dict(evidence)),
            "epoch": epoch,
        },
    )


async def list_reaps(database: Database, *, node_id: str | None = None, limit: int = 100) -> list[Reap]:
    """The newest rows first, of one node or of all; `limit` is 1 to 1000."""
    if not 1 <= limit <= MOST_REAPS:
        raise ValueError(f"limit={limit}: must be from 1 to {MOST_REAPS}")
    return [Reap(**row) for row in await database.rows(_LIST, {"node_id": node_id, "limit": limit})]
