"""One replica's hand on the shared rows: instances, ownership with epochs, presence."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from inference_fleet.cluster import claims, instances, reassertion
from inference_fleet.cluster.claims import (
    BootConflict,
    Claim,
    ClaimVerdict,
    ConnectionRow,
    EpochLeap,
    Owner,
    Standing,
    Superseded,
    judge_claim,
)
from inference_fleet.cluster.instances import Instance, InstanceIdTaken, Swept
from inference_fleet.cluster.presence import (
    PRESENCE_COLUMNS,
    PRESENCE_JOIN,
    Presence,
    presence_facts,
    presence_of,
    presence_windows,
)
from inference_fleet.cluster.reassertion import Assertion, Reasserted, judge_assertion
from inference_fleet.store import statement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from inference_fleet.settings import Timings
    from inference_fleet.store import Connection, Database

_PRESENCE = statement(
    "SELECT $columns FROM (SELECT %(node_id)s::text AS id) n $join",
    columns=PRESENCE_COLUMNS,
    join=PRESENCE_JOIN,
)
_PRESENCES = statement(
    "SELECT n.id, $columns FROM nodes n $join",
    columns=PRESENCE_COLUMNS,
    join=PRESENCE_JOIN,
)


class Registry:
    """The rows of `instances` and `connections` as one replica reads and writes them.

    Every stamp is written by the database's clock and compared with it. An outage is `DatabaseUnavailable` and
    changes nothing: it is never an answer.
    """

    def __init__(self, database: Database, *, instance_id: str, boot_id: str, timings: Timings) -> None:
        """`instance_id` names the replica for good, `boot_id` this process of it."""
        if not instance_id or not boot_id:
            raise ValueError(f"instance {instance_id!r}, boot {boot_id!r}: neither may be empty")
        self.instance_id = instance_id
        self.boot_id = boot_id
        self.timings = timings
        self.address = ""
        self._database = database

    # Instances

    async def register(self, address: str) -> None:
        """Write this replica's row (an empty `address`: present, not dialable).

        What a process of another boot held under the same id departs in the same transaction.
        """
        self.address = address
        async with self._database.transaction() as connection:
            await connection.execute(instances.DEPART_PREDECESSOR, self._me)
            await connection.execute(instances.REGISTER, self._me)

    async def heartbeat(self) -> bool:
        """Stamp this replica's row; False means it had been swept and was written anew.

        `InstanceIdTaken` when another process has registered under this id since.
        """
        async with self._database.connection() as connection:
            if (await connection.execute(instances.HEARTBEAT, self._me)).rowcount:
                return True
            if (await connection.execute(instances.REVIVE, self._me)).rowcount:
                return False
        raise InstanceIdTaken(
            f"instance {self.instance_id} is registered by another process; try: give every replica its own "
            "BLACKSTART_INSTANCE_ID"
        )

    async def unregister(self) -> None:
        """Leave: what stands under this id departs and the row goes."""
        async with self._database.transaction() as connection:
            await connection.execute(instances.DEPART_OWN, self._me)
            await connection.execute(instances.UNREGISTER, self._me)

    async def instances(self) -> list[Instance]:
        """Every replica with a row, dead or alive."""
        return [Instance(**row) for row in await self._database.rows(instances.LIST, self._windows)]

    async def live(self) -> list[Instance]:
        """The replicas seen within the liveness window."""
        return [instance for instance in await self.instances() if instance.live]

    # Ownership

    async def claim(self, node_id: str, *, seen_epoch: int, boot_id: str) -> Claim:
        """Take a node for this replica at an epoch above everything it has seen; its boot is the node's from here on.

        Claims on one node queue at its row. `EpochLeap` for a `seen_epoch` no restored database explains;
        `BootConflict` when another boot of the node is connected and took it only just now.
        """
        if not node_id or not boot_id or seen_epoch < 0:
            raise ValueError(f"claim of node {node_id!r} by boot {boot_id!r}, seen epoch {seen_epoch}")
        async with self._database.transaction() as connection:
            standing = await self._lock_standing(connection, node_id)
            verdict = judge_claim(standing, boot_id)
            if verdict is ClaimVerdict.REFUSE:
                raise BootConflict(
                    node_id, boots=(standing.boot_id, boot_id), retry_after_s=standing.damped_for_s
                )
            epoch = await _draw_epoch(connection, standing, node_id, floor=max(seen_epoch, standing.epoch))
            conflict = verdict is ClaimVerdict.CONFLICT
            await connection.execute(
                claims.TAKE,
                {**self._me, "node_id": node_id, "epoch": epoch, "boot_id": boot_id, "conflict": conflict},
            )
            await connection.execute(claims.SPEAK_FOR_NODE, {"node_id": node_id, "boot_id": boot_id})
        superseded = None
        if standing.held:
            superseded = Superseded(
                owner=standing.owner,
                boot_id=standing.boot_id,
                epoch=standing.epoch,
                same_boot=standing.boot_id == boot_id,
            )
        return Claim(node_id=node_id, epoch=epoch, superseded=superseded, conflict=conflict)

    async def _lock_standing(self, connection: Connection, node_id: str) -> Standing:
        parameters = {
            **self._windows,
            "node_id": node_id,
            "damping": timedelta(seconds=self.timings.conflict_damping_s),
        }
        cursor = await connection.execute(claims.LOCK_STANDING, parameters)
        if (row := await cursor.fetchone()) is None:
            await connection.execute(claims.ENSURE_ROW, parameters)
            row = await (await connection.execute(claims.LOCK_STANDING, parameters)).fetchone()
            assert row is not None  # this transaction has just made it, or waited for whoever did
        return Standing(**row)

    async def release(self, node_id: str, epoch: int) -> bool:
        """End this replica's hold of that epoch; False when the row says otherwise already."""
        return (
            await self._database.change(claims.RELEASE, {**self._me, "node_id": node_id, "epoch": epoch}) == 1
        )

    async def owner(self, node_id: str) -> Owner | None:
        """The live replica that holds the node, or None: absence, by the liveness join."""
        return (await self.owners([node_id])).get(node_id)

    async def owners(self, node_ids: Sequence[str]) -> dict[str, Owner]:
        """The same for several nodes by one statement; what no live replica holds is not in it."""
        rows = await self._database.rows(claims.OWNERS, {**self._windows, "node_ids": list(node_ids)})
        return {row.pop("node_id"): Owner(**row) for row in rows}

    async def owner_row(self, node_id: str) -> ConnectionRow | None:
        """The bare row, for reports; it may name a dead owner."""
        row = await self._database.row(claims.OWNER_ROW, {"node_id": node_id})
        return None if row is None else ConnectionRow(**row)

    # Presence

    async def presence(self, node_id: str) -> Presence:
        """One node's presence, from one statement."""
        row = await self._database.row(_PRESENCE, {**self._windows, "node_id": node_id})
        assert row is not None  # the statement selects one row for any id
        return presence_of(presence_facts(row))

    async def presences(self) -> dict[str, Presence]:
        """That of every node that is registered, and of no other, whatever row it left behind."""
        rows = await self._database.rows(_PRESENCES, self._windows)
        return {row["id"]: presence_of(presence_facts(row)) for row in rows}

    # Housekeeping

    async def sweep(self) -> Swept:
        """Record the departures dead replicas left behind, then delete their rows."""
        async with self._database.transaction() as connection:
            cleared = await (await connection.execute(instances.DEPART_DEAD, self._windows)).fetchall()
            deleted = await (await connection.execute(instances.DELETE_DEAD, self._windows)).fetchall()
        return Swept(
            cleared=tuple((row["node_id"], row["owner"]) for row in cleared),
            deleted=tuple(row["id"] for row in deleted),
        )

    async def purge(self) -> tuple[str, ...]:
        """Delete rows departed longer ago than the retention; from here on those nodes are unknown."""
        rows = await self._database.rows(
            instances.PURGE, {"retention": timedelta(seconds=self.timings.departed_retention_s)}
        )
        return tuple(row["node_id"] for row in rows)

    async def reassert(self, held: Mapping[str, int]) -> Reasserted:
        """Settle the sessions this replica holds (node id to epoch) with their rows.

        No transaction spans the statements: each write asks again for what it rests on.
        """
        nodes = list(held)
        async with self._database.connection() as connection:
            cursor = await connection.execute(reassertion.READ_HELD, {"nodes": nodes})
            rows = {row["node_id"]: row for row in await cursor.fetchall()}
            verdicts = {
                node_id: judge_assertion(
                    me=self.instance_id,
                    epoch=epoch,
                    row_owner=rows[node_id]["owner"] if node_id in rows else None,
                    row_epoch=rows[node_id]["epoch"] if node_id in rows else None,
                )
                for node_id, epoch in held.items()
            }
            taken = [node_id for node_id in nodes if verdicts[node_id] is Assertion.TAKEN]
            retaken: set[str] = set()
            if taken:
                cursor = await connection.execute(
                    reassertion.RETAKE,
                    {**self._me, "nodes": taken, "epochs": [held[node_id] for node_id in taken]},
                )
                retaken = {row["node_id"] for row in await cursor.fetchall()}
            cursor = await connection.execute(
                reassertion.DEPART_ORPHANS,
                {
                    **self._me,
                    "nodes": nodes,
                    "settling": timedelta(seconds=self.timings.instance_liveness_s),
                },
            )
            orphaned = tuple((row["node_id"], row["epoch"]) for row in await cursor.fetchall())

        def such(verdict: Assertion) -> tuple[tuple[str, int], ...]:
            return tuple((node_id, held[node_id]) for node_id in nodes if verdicts[node_id] is verdict)

        return Reasserted(
            kept=such(Assertion.KEPT),
            retaken=tuple(pair for pair in such(Assertion.TAKEN) if pair[0] in retaken),
            lost=such(Assertion.LOST),
            orphaned=orphaned,
        )

    @property
    def _me(self) -> dict[str, Any]:
        return {"me": self.instance_id, "boot_id": self.boot_id, "address": self.address}

    @property
    def _windows(self) -> dict[str, Any]:
        return presence_windows(self.timings)


async def _draw_epoch(connection: Connection, standing: Standing, node_id: str, *, floor: int) -> int:
    """The next number of the sequence, or just above `floor` with the sequence moved there."""
    if standing.upcoming > floor:
        return await _number(connection, claims.DRAW)
    latest = standing.upcoming - 1
    if claims.leaps(floor, latest):
        raise EpochLeap(node_id, seen=floor, latest=latest)
    drawn = await _number(connection, claims.DRAW_ALONE)
    epoch = claims.next_epoch(drawn, floor=floor)
    if epoch > drawn:
        await connection.execute(claims.MOVE_SEQUENCE, {"epoch": epoch})
    return epoch


async def _number(connection: Connection, query: str) -> int:
    row = await (await connection.execute(query)).fetchone()
    assert row is not None  # each of these selects one value
    return int(row["drawn"])
