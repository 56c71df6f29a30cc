"""What ownership ought to be, in memory: rows, replicas and sessions, and each act done to both sides at once."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString

import pytest
from hypothesis.stateful import RuleBasedStateMachine

from inference_fleet.cluster import BootConflict, Claim, Presence, Registry
from inference_fleet.settings import Timings

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    import psycopg
    from psycopg.rows import DictRow

    from inference_fleet.store import Database

# Windows so wide that a slow machine cannot close one: only the rules that age a stamp do.
WIDE = replace(
    Timings.production(),
    instance_liveness_s=600.0,
    reconnect_grace_s=2400.0,
    conflict_damping_s=600.0,
    departed_retention_floor_s=9000.0,
)


@dataclass
class World:
    """What all examples share: one loop, one database, and how often each rule fired.

    `aside` is a second way to the same rows, for what is looked at and aged around the code under test.
    """

    loop: asyncio.AbstractEventLoop
    database: Database
    aside: psycopg.Connection[DictRow]
    fired: Counter[str] = field(default_factory=Counter)
    examples: int = 0
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)


@dataclass
class Process:
    """One process of a replica: its registry and the sessions it would hold."""

    registry: Registry
    sessions: dict[str, int] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return self.registry.instance_id

    @property
    def boot(self) -> str:
        return self.registry.boot_id


@dataclass
class ReplicaRow:
    boot: str
    live: bool = True


@dataclass
class NodeRow:
    owner: str
    epoch: int
    boot: str
    departed_for: float | None = None
    settled: bool = False
    conflicts: int = 0
    damped: bool = False


class OwnershipModel(RuleBasedStateMachine):
    """The model and the acts that several rules share."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        world = self.world
        world.examples += 1
        example = next(world.numbers)
        self.node_ids = [f"n{example}-{number}" for number in range(2)]
        self.processes = [
            Process(Registry(world.database, instance_id=replica, boot_id=boot, timings=WIDE))
            for replica in (f"a{example}", f"b{example}")
            for boot in ("p1", "p2")
        ]
        self.replicas: dict[str, ReplicaRow] = {}
        self.rows: dict[str, NodeRow] = {}
        self.seen = dict.fromkeys(self.node_ids, 0)
        self.given: set[int] = set()

    def teardown(self) -> None:
        self.world.aside.execute("WITH c AS (DELETE FROM connections) DELETE FROM instances")

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.world.run(work)

    def count(self, name: str) -> None:
        self.world.fired[name] += 1

    def speaks(self, process: Process) -> bool:
        row = self.replicas.get(process.id)
        return row is not None and row.boot == process.boot

    def live(self, owner: str) -> bool:
        row = self.replicas.get(owner)
        return row is not None and row.live

    @staticmethod
    def depart(row: NodeRow) -> None:
        row.owner, row.departed_for = "", 0.0

    def took(self, process: Process, node: str, boot: str, claim: Claim, *, floor: int) -> None:
        before = self.rows.get(node)
        assert claim.epoch > max(floor, before.epoch if before else 0), "an epoch went back"
        assert claim.epoch not in self.given, "an epoch was given twice"
        self.given.add(claim.epoch)
        superseded = before if before is not None and before.owner else None
        assert (claim.superseded is not None) == (superseded is not None)
        if claim.superseded is not None and superseded is not None:
            assert (claim.superseded.owner, claim.superseded.epoch) == (superseded.owner, superseded.epoch)
            assert claim.superseded.same_boot == (superseded.boot == boot)
        fought = self.fights(node, boot)
        assert claim.conflict == fought
        conflicts = (before.conflicts if before else 0) + int(fought)
        damped = True if fought else bool(before and before.damped)
        self.rows[node] = NodeRow(process.id, claim.epoch, boot, conflicts=conflicts, damped=damped)
        self.seen[node] = max(self.seen[node], claim.epoch)
        process.sessions[node] = claim.epoch

    def fights(self, node: str, boot: str) -> bool:
        row = self.rows.get(node)
        return row is not None and row.owner != "" and self.live(row.owner) and row.boot not in {"", boot}

    def attempt(self, process: Process, node: str, boot: str, *, seen: int) -> None:
        row = self.rows.get(node)
        if row is not None and row.damped and self.fights(node, boot):
            self.count("claim refused to a second boot")
            with pytest.raises(BootConflict):
                self.run(process.registry.claim(node, seen_epoch=seen, boot_id=boot))
            return
        self.count("claim of a second boot" if self.fights(node, boot) else "claim")
        claim = self.run(process.registry.claim(node, seen_epoch=seen, boot_id=boot))
        self.took(process, node, boot, claim, floor=seen)

    def latest(self) -> int:
        row = self.world.aside.execute("SELECT last_value AS latest FROM connection_epochs").fetchone()
        assert row is not None
        return int(row["latest"])

    def settle(self, process: Process) -> None:
        settled = self.run(process.registry.reassert(dict(process.sessions)))
        kept, retaken, lost, orphaned = self.expected(process)
        assert sorted(settled.kept) == sorted(kept)
        assert sorted(settled.retaken) == sorted(retaken)
        assert sorted(settled.lost) == sorted(lost)
        assert sorted(settled.orphaned) == sorted(orphaned)
        for name, pairs in (("retake", retaken), ("lose", lost), ("orphan", orphaned), ("keep", kept)):
            if pairs:
                self.count(name)
        for node, epoch in retaken:
            before = self.rows.get(node)
            self.rows[node] = NodeRow(process.id, epoch, "", conflicts=0)
            if before is not None:
                self.rows[node] = replace(
                    before, owner=process.id, epoch=epoch, departed_for=None, settled=False
                )
        for node, _ in lost:
            del process.sessions[node]
        for node, _ in orphaned:
            self.depart(self.rows[node])

    def expected(self, process: Process) -> tuple[list[tuple[str, int]], ...]:
        kept, retaken, lost = [], [], []
        for node, epoch in process.sessions.items():
            row = self.rows.get(node)
            if row is None or row.epoch < epoch or (row.epoch == epoch and row.owner == ""):
                retaken.append((node, epoch))
            elif row.owner != process.id:
                lost.append((node, epoch))
            elif row.epoch == epoch:
                kept.append((node, epoch))
        orphaned = [
            (node, row.epoch)
            for node, row in self.rows.items()
            if row.owner == process.id and row.settled and node not in process.sessions
        ]
        return kept, retaken, lost, orphaned

    def owning(self) -> list[tuple[int, str]]:
        """Processes whose session is the one their replica's row is about."""
        return [
            (slot, node)
            for slot, process in enumerate(self.processes)
            for node, epoch in sorted(process.sessions.items())
            if (row := self.rows.get(node)) is not None and (row.owner, row.epoch) == (process.id, epoch)
        ]

    def forget_departed(self, process: Process) -> None:
        purged = sorted(self.run(process.registry.purge()))
        old = sorted(
            node
            for node, row in self.rows.items()
            if row.owner == ""
            and row.departed_for is not None
            and row.departed_for >= WIDE.departed_retention_s
        )
        self.count("purge" if old else "purge of nothing")
        assert purged == old
        for node in old:
            del self.rows[node]

    def age(self, query: LiteralString, key: str, by: float) -> None:
        assert self.world.aside.execute(query, {"id": key, "by": by}).rowcount == 1

    def presence(self, row: NodeRow) -> Presence:
        if row.owner:
            return Presence.CONNECTED if self.live(row.owner) else Presence.RECONNECTING
        assert row.departed_for is not None
        return Presence.GONE if row.departed_for >= WIDE.reconnect_grace_s else Presence.RECONNECTING
