"""The nodes as one replica reads and writes them: who may be one, what it last said, what it is called."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Jsonb

from inference_fleet.cluster import Presence
from inference_fleet.roster.frontend.credentials import CredentialVersion, credential_matches
from inference_fleet.roster.frontend.facts import (
    NODE_FACTS,
    NodeView,
    fact_windows,
    presence_in,
    status_facts,
    view_of,
)
from inference_fleet.roster.frontend.registration import (
    Holder,
    NameTaken,
    RegistrationVerdict,
    judge_registration,
    retry_after_s,
)
from inference_fleet.roster.frontend.status import NodeStatus, judge_status
from inference_fleet.roster.wire import Heartbeat, Registered, Registration
from inference_fleet.store import ReapAction, list_reaps, record_reap, statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from inference_fleet.settings import Timings
    from inference_fleet.store import Connection, Database, Reap


class NodeUnknown(LookupError):
    """There is no node with that id."""

    def __init__(self, node_id: str) -> None:
        super().__init__(f"node {node_id} is not registered; try: register it again")
        self.node_id = node_id


class BootSuperseded(Exception):
    """A process speaks for a node that another one has registered as, or claimed, since."""

    def __init__(self, node_id: str, *, boot_id: str, current: str) -> None:
        super().__init__(
            f"node {node_id}: boot {boot_id} was superseded by boot {current}; try: run one worker per credential"
        )
        self.boot_id = boot_id
        self.current = current


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model process a request may be sent to."""

    node_id: str
    node_name: str
    model: str
    port: int
    process_key: str


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why a node is what it is: its view, the facts behind it, and what was done to it, newest first."""

    node: NodeView | None
    facts: Mapping[str, Any]
    reaps: list[Reap]


# Makes the node or finds it: either way the row is locked, so registrations of one name queue here.
_TAKE_NAME = """
INSERT INTO nodes (id, name, node_type, approved, status, boot_id, credential_sha256, capacity, labels,
                   last_heartbeat, created_at, updated_at)
VALUES (%(id)s, %(name)s, %(node_type)s, %(approved)s, %(status)s, %(boot_id)s, %(credential_sha256)s, %(capacity)s,
        %(labels)s, clock_timestamp(), clock_timestamp(), clock_timestamp())
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING id
"""

# The rows of a node's models belong to the process that reported them.
_FORGET_MODELS = "DELETE FROM node_models WHERE node_id = %(id)s"

_REGISTER_AGAIN = """
UPDATE nodes SET
  node_type = %(node_type)s, boot_id = %(boot_id)s, credential_sha256 = %(credential_sha256)s,
  credential_version = credential_version + %(raise)s, capacity = %(capacity)s, labels = %(labels)s,
  approved = approved OR %(approved)s, last_heartbeat = clock_timestamp(), updated_at = clock_timestamp()
WHERE id = %(id)s
"""

_SET_STATUS = """
UPDATE nodes SET status = %(status)s, status_reason = %(reason)s, updated_at = clock_timestamp()
WHERE id = %(id)s AND (status, status_reason) IS DISTINCT FROM (%(status)s, %(reason)s)
"""

_HEARTBEAT = """
UPDATE nodes SET last_heartbeat = clock_timestamp(), capacity = %(capacity)s
WHERE id = %(id)s AND boot_id = %(boot_id)s
"""

_REPORT_MODELS = """
WITH reported AS (
  SELECT * FROM unnest(%(names)s::text[], %(ports)s::int[], %(keys)s::text[], %(states)s::text[])
    AS r (name, port, process_key, state)
), gone AS (
  DELETE FROM node_models m WHERE m.node_id = %(id)s AND m.name NOT IN (SELECT name FROM reported)
)
INSERT INTO node_models (node_id, name, port, process_key, state, updated_at)
SELECT %(id)s, name, port, process_key, state, clock_timestamp() FROM reported
ON CONFLICT (node_id, name) DO UPDATE
SET port = excluded.port, process_key = excluded.process_key, state = excluded.state, updated_at = clock_timestamp()
"""

_CREDENTIAL = "SELECT credential_sha256, credential_version FROM nodes WHERE id = %(id)s"
_VERSIONS = "SELECT id, credential_version FROM nodes WHERE id = ANY(%(ids)s)"

_ONE = statement("$facts WHERE n.id = %(id)s", facts=NODE_FACTS)
_ALL = statement("$facts ORDER BY n.name", facts=NODE_FACTS)
_SERVING = statement(
    "$facts WHERE n.node_type = 'backend' AND n.status = 'healthy' AND NOT n.draining AND EXISTS ("
    "SELECT 1 FROM node_models s WHERE s.node_id = n.id AND s.state = 'ready'"
    " AND (%(model)s::text IS NULL OR s.name = %(model)s)) ORDER BY n.name",
    facts=NODE_FACTS,
)


class Roster:
    """The rows of `nodes` and `node_models`. An outage is `DatabaseUnavailable` and never an empty roster."""

    def __init__(self, database: Database, *, instance_id: str, timings: Timings, auto_approve: bool) -> None:
        """`instance_id` signs what this replica writes into the reap journal."""
        self._database = database
        self._instance_id = instance_id
        self._timings = timings
        self._auto_approve = auto_approve

    # What workers say

    async def register(self, registration: Registration) -> Registered:
        """Make the node of that name, or be it again; `NameTaken` while a living one has another credential.

        The node's id stays, its boot is replaced and the rows of the last boot's models go.
        """
        new_id = f"node-{uuid.uuid4().hex[:12]}"
        values = {
            "name": registration.name,
            "node_type": registration.node_type,
            "boot_id": registration.boot_id,
            "credential_sha256": registration.credential_sha256,
            "capacity": Jsonb(registration.capacity),
            "labels": Jsonb(registration.labels),
            "approved": self._auto_approve,
            "status": (NodeStatus.HEALTHY if self._auto_approve else NodeStatus.PENDING).value,
        }
        async with self._database.transaction() as connection:
            taken = await (await connection.execute(_TAKE_NAME, {**values, "id": new_id})).fetchone()
            assert taken is not None  # the statement inserts or finds
            node_id = taken["id"]
            if node_id != new_id:
                await self._register_again(connection, node_id, values)
            row = await self._facts(connection, node_id)
            judgement = judge_status(status_facts(row))
            await connection.execute(
                _SET_STATUS,
                {"id": node_id, "status": judgement.status.value, "reason": judgement.reason},
            )
        return Registered(
            id=node_id,
            name=row["name"],
            node_type=row["node_type"],
            status=judgement.status.value,
            created_at=row["created_at"].astimezone(UTC).isoformat(),
        )

    async def _register_again(self, connection: Connection, node_id: str, values: dict[str, Any]) -> None:
        row = await self._facts(connection, node_id)
        connected = presence_in(row) is Presence.CONNECTED
        holder = Holder(
            credential_sha256=row["credential_sha256"],
            connected=connected,
            heartbeat_fresh=row["heartbeat_fresh"],
        )
        verdict = judge_registration(holder, values["credential_sha256"])
        if verdict is RegistrationVerdict.TAKEN:
            wait_s = retry_after_s(
                heartbeat_age_s=row["heartbeat_age_s"],
                stale_s=self._timings.heartbeat_stale_s,
                connected=connected,
                liveness_s=self._timings.instance_liveness_s,
            )
            raise NameTaken(row["name"], holder=node_id, retry_after_s=wait_s)
        replaced = verdict is RegistrationVerdict.REPLACE
        await connection.execute(_REGISTER_AGAIN, {**values, "id": node_id, "raise": int(replaced)})
        await connection.execute(_FORGET_MODELS, {"id": node_id})
        if replaced:
            await record_reap(
                connection,
                node_id=node_id,
                node_name=row["name"],
                action=ReapAction.CREDENTIAL_REPLACED,
                by=self._instance_id,
                reason="registered under a used name with another credential while its holder was dead",
                evidence={
                    "presence": presence_in(row).value,
                    "heartbeat_age_s": row["heartbeat_age_s"],
                    "boot_before": row["boot_id"],
                    "boot": values["boot_id"],
                    "version": row["credential_version"] + 1,
                },
                epoch=row["epoch"],
            )

    async def heartbeat(self, node_id: str, heartbeat: Heartbeat) -> None:
        """Stamp the node and replace what is known of its models by what it reports.

        `NodeUnknown` for an id nobody registered; `BootSuperseded` for a process a later one has replaced.
        """
        models = {model.name: model for model in heartbeat.models}
        async with self._database.transaction() as connection:
            stamped = await connection.execute(
                _HEARTBEAT,
                {"id": node_id, "boot_id": heartbeat.boot_id, "capacity": Jsonb(heartbeat.capacity)},
            )
            if not stamped.rowcount:
                row = await self._facts(connection, node_id)
                raise BootSuperseded(node_id, boot_id=heartbeat.boot_id, current=row["boot_id"])
            await connection.execute(
                _REPORT_MODELS,
                {
                    "id": node_id,
                    "names": list(models),
                    "ports": [model.port for model in models.values()],
                    "keys": [model.process_key for model in models.values()],
                    "states": [model.state for model in models.values()],
                },
            )

    async def tunnel_arrived(self, node_id: str) -> None:
        """Judge one node's status right after its claim, so a returned tunnel need not wait for the next tick."""
        async with self._database.transaction() as connection:
            row = await self._facts(connection, node_id)
            judgement = judge_status(status_facts(row))
            if judgement.status is NodeStatus.HEALTHY:
                await connection.execute(_SET_STATUS, {"id": node_id, "status": "healthy", "reason": ""})

    # Credentials

    async def check_credential(self, node_id: str, credential: str) -> CredentialVersion | None:
        """The version of the node's credential if this is it, else None. An empty one is nobody's."""
        row = await self._database.row(_CREDENTIAL, {"id": node_id})
        if not credential_matches(credential, row["credential_sha256"] if row else None) or row is None:
            return None
        return CredentialVersion(row["credential_version"])

    async def credential_versions(self, node_ids: Iterable[str]) -> dict[str, int]:
        """The current version of each node that still exists; a live tunnel of any other version is cut."""
        rows = await self._database.rows(_VERSIONS, {"ids": list(node_ids)})
        return {row["id"]: row["credential_version"] for row in rows}

    # What others ask

    async def nodes(self) -> list[NodeView]:
        """Every node, by name, from one statement."""
        return [view_of(row) for row in await self._database.rows(_ALL, fact_windows(self._timings))]

    async def node(self, node_id: str) -> NodeView | None:
        """One node, or None."""
        row = await self._database.row(_ONE, {**fact_windows(self._timings), "id": node_id})
        return None if row is None else view_of(row)

    async def explain(self, node_id: str, *, limit: int = 100) -> Explanation:
        """The node, the facts its status rests on, and its rows of the reap journal."""
        row = await self._database.row(_ONE, {**fact_windows(self._timings), "id": node_id})
        reaps = await list_reaps(self._database, node_id=node_id, limit=limit)
        if row is None:
            return Explanation(node=None, facts={}, reaps=reaps)
        hidden = {"credential_sha256", "models", "address", "http_address"}
        facts = {key: value for key, value in row.items() if key not in hidden}
        judgement = judge_status(status_facts(row))
        facts |= {"judged_status": judgement.status.value, "judged_reason": judgement.reason}
        return Explanation(node=view_of(row), facts=facts, reaps=reaps)

    async def candidates(self, model: str) -> list[Candidate]:
        """The ready processes of that model on healthy backend nodes whose presence is not gone, by node name."""
        return [found for found in await self._ready(model) if found.model == model]

    async def model_names(self) -> list[str]:
        """The models somebody can serve now, sorted."""
        return sorted({found.model for found in await self._ready(None)})

    async def _ready(self, model: str | None) -> list[Candidate]:
        rows = await self._database.rows(_SERVING, {**fact_windows(self._timings), "model": model})
        return [
            Candidate(
                node_id=row["id"],
                node_name=row["name"],
                model=each["name"],
                port=each["port"],
                process_key=each["process_key"],
            )
            for row in rows
            if presence_in(row) is not Presence.GONE
            for each in row["models"]
            if each["state"] == "ready"
        ]

    # What is done to a node

    async def set_draining(self, node_id: str, *, draining: bool) -> None:
        """Take the node out of placement, or back in; `NodeUnknown` when there is none."""
        await self._set(node_id, "UPDATE nodes SET draining = %(value)s WHERE id = %(id)s", value=draining)

    async def approve(self, node_id: str) -> None:
        """Let a pending node in."""
        await self._set(node_id, "UPDATE nodes SET approved = %(value)s WHERE id = %(id)s", value=True)

    async def _set(self, node_id: str, query: str, *, value: bool) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(query, {"id": node_id, "value": value})
            judgement = judge_status(status_facts(await self._facts(connection, node_id)))
            if not judgement.delete_models:
                await connection.execute(
                    _SET_STATUS,
                    {"id": node_id, "status": judgement.status.value, "reason": judgement.reason},
                )

    async def deregister(self, node_id: str) -> None:
        """Delete the node and its models; its live tunnel is cut by whoever holds it at the next tick."""
        async with self._database.transaction() as connection:
            row = await self._facts(connection, node_id)
            await connection.execute("DELETE FROM nodes WHERE id = %(id)s", {"id": node_id})
            await record_reap(
                connection,
                node_id=node_id,
                node_name=row["name"],
                action=ReapAction.DEREGISTERED,
                by=self._instance_id,
                reason="deregistered on request",
                evidence={"models": [model["name"] for model in row["models"]]},
                epoch=row["epoch"],
            )

    async def _facts(self, connection: Connection, node_id: str) -> dict[str, Any]:
        cursor = await connection.execute(_ONE, {**fact_windows(self._timings), "id": node_id})
        if (row := await cursor.fetchone()) is None:
            raise NodeUnknown(node_id)
        return row
