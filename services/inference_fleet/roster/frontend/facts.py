"""The facts about nodes in one statement on the database's clock, and the view of a node made from them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from inference_fleet.cluster import (
    PRESENCE_COLUMNS,
    PRESENCE_JOIN,
    Presence,
    presence_facts,
    presence_of,
    presence_windows,
)
from inference_fleet.roster.frontend.status import NodeStatus, StatusFacts
from inference_fleet.store import statement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from inference_fleet.settings import Timings

HEARTBEAT_IS_FRESH = "coalesce(n.last_heartbeat > statement_timestamp() - %(stale)s::interval, false)"

# Every fact a verdict about a node may rest on. `$where` narrows it.
NODE_FACTS = statement(
    """
SELECT n.id, n.name, n.node_type, n.approved, n.draining, n.status, n.status_reason, n.boot_id,
       n.credential_sha256, n.credential_version, n.labels, n.capacity, n.address, n.http_address,
       n.last_heartbeat, n.created_at,
       $fresh AS heartbeat_fresh,
       extract(epoch FROM statement_timestamp() - n.last_heartbeat)::float8 AS heartbeat_age_s,
       $presence,
       c.owner, c.epoch, c.boot_id AS connection_boot_id, c.previous_boot_id, c.conflicts, c.disconnected_at,
       coalesce(c.boot_changed_at > statement_timestamp() - %(grace)s::interval, false) AS boots_in_conflict,
       coalesce(m.models, '[]') AS models
FROM nodes n
$join
LEFT JOIN LATERAL (
  SELECT jsonb_agg(jsonb_build_object('name', name, 'port', port, 'process_key', process_key, 'state', state)
                   ORDER BY name) AS models
  FROM node_models WHERE node_id = n.id
) m ON true
""",
    fresh=HEARTBEAT_IS_FRESH,
    presence=PRESENCE_COLUMNS,
    join=PRESENCE_JOIN,
)


def fact_windows(timings: Timings) -> dict[str, Any]:
    """The parameters of `NODE_FACTS`."""
    return {**presence_windows(timings), "stale": timedelta(seconds=timings.heartbeat_stale_s)}


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One element of `GET /api/nodes`. The two addresses are always empty: nobody ever dials a worker."""

    id: str
    name: str
    node_type: str
    status: str
    status_reason: str
    presence: str
    owner: str
    epoch: int
    boot_id: str
    models: list[dict[str, Any]]
    last_heartbeat: datetime | None
    labels: dict[str, str]
    capacity: dict[str, float]
    model_count: int
    in_flight_count: int = 0
    address: str = ""
    http_address: str = ""

    @property
    def placeable(self) -> bool:
        """Whether its ready processes are candidates: the rule of `Roster.candidates`, read from the view."""
        serving = self.node_type == "backend" and self.status == NodeStatus.HEALTHY
        return serving and self.presence != Presence.GONE


def presence_in(row: Mapping[str, Any]) -> Presence:
    """The presence in a row of `NODE_FACTS`."""
    return presence_of(presence_facts(row))


def status_facts(row: Mapping[str, Any]) -> StatusFacts:
    """What the status machine reads of a row of `NODE_FACTS`."""
    return StatusFacts(
        approved=row["approved"],
        draining=row["draining"],
        heartbeat_fresh=row["heartbeat_fresh"],
        presence=presence_in(row),
        before=NodeStatus(row["status"]),
        reason_before=row["status_reason"],
    )


def view_of(row: Mapping[str, Any]) -> NodeView:
    """The view of one row of `NODE_FACTS`; the owner shown is a live one."""
    return NodeView(
        id=row["id"],
        name=row["name"],
        node_type=row["node_type"],
        status=row["status"],
        status_reason=_reason(row),
        presence=presence_in(row).value,
        owner=row["owner"] if row["owner_live"] else "",
        epoch=row["epoch"] or 0,
        boot_id=row["boot_id"],
        models=row["models"],
        last_heartbeat=row["last_heartbeat"],
        labels=row["labels"],
        capacity=row["capacity"],
        model_count=len(row["models"]),
    )


def _reason(row: Mapping[str, Any]) -> str:
    """The stored reason, and the two boots that fight for the node while they do."""
    reasons = [row["status_reason"]] if row["status_reason"] else []
    if row["boots_in_conflict"]:
        reasons.append(
            f"boot-conflict: {row['connection_boot_id']} took the tunnel from {row['previous_boot_id']} "
            f"({row['conflicts']} so far)"
        )
    return "; ".join(reasons)
