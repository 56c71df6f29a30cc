"""Ownership under every interleaving hypothesis can think of, on a real Postgres, against a model in memory."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from blackstart.pytest_plugin.options import options_of
from inference_fleet.cluster import (
    EPOCH_LEAP_MAX,
    BootConflict,
    Claim,
    EpochLeap,
    InstanceIdTaken,
    Presence,
    Registry,
)
from inference_fleet.cluster.presence import presence_facts, presence_of, presence_windows
from inference_fleet.cluster.registry import _PRESENCES
from inference_fleet.settings import Timings
from inference_fleet.store import Database

if TYPE_CHECKING:
    from collections.abc import Coroutine

EXAMPLES, STEPS = 200, 50
# Windows so wide that a slow machine cannot close one: only the rules that age a stamp do.
WIDE = replace(
    Timings.production(),
    instance_liveness_s=600.0,
    reconnect_grace_s=2400.0,
    conflict_damping_s=600.0,
    departed_retention_floor_s=9000.0,
)
SLOTS = st.sampled_from([0, 1, 2, 3])  # two replicas with two processes each
NODES = st.sampled_from([0, 1])
BOOTS = st.sampled_from(["worker-boot-1", "worker-boot-2"])


@dataclass
class World:
    """What all examples share: one loop, one database, and how often each rule fired."""

    loop: asyncio.AbstractEventLoop
    database: Database
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


class Ownership(RuleBasedStateMachine):
    """Every rule does one thing to the database and the same to the model; then the two are compared."""

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
        self.run(self.world.database.change("WITH c AS (DELETE FROM connections) DELETE FROM instances"))

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

    # Replicas

    @rule(slot=SLOTS)
    def register(self, slot: int) -> None:
        self.count("register")
        process = self.processes[slot]
        self.run(process.registry.register("10.0.0.1:80"))
        if not self.speaks(process):
            for row in self.rows.values():
                if row.owner == process.id:
                    self.depart(row)
        self.replicas[process.id] = ReplicaRow(process.boot)

    @rule(slot=SLOTS)
    def heartbeat(self, slot: int) -> None:
        process = self.processes[slot]
        row = self.replicas.get(process.id)
        if row is not None and row.boot != process.boot:
            self.count("heartbeat of a replaced process")
            with pytest.raises(InstanceIdTaken):
                self.run(process.registry.heartbeat())
            return
        self.count("heartbeat" if row else "heartbeat of a swept replica")
        assert self.run(process.registry.heartbeat()) is (row is not None)
        self.replicas[process.id] = ReplicaRow(process.boot)

    @precondition(lambda self: any(row.live for row in self.replicas.values()))
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.count("die")
        victim = data.draw(st.sampled_from(sorted(key for key, row in self.replicas.items() if row.live)))
        self.age(
            "UPDATE instances SET last_seen = last_seen - %(by)s * interval '1 s' WHERE id = %(id)s",
            victim,
            600,
        )
        self.replicas[victim].live = False

    @rule(slot=SLOTS)
    def leave(self, slot: int) -> None:
        self.count("leave")
        process = self.processes[slot]
        speaks = self.speaks(process)
        self.run(process.registry.unregister())
        if speaks:
            for row in self.rows.values():
                if row.owner == process.id:
                    self.depart(row)
            del self.replicas[process.id]
            process.sessions.clear()

    # Ownership

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

    @rule(slot=SLOTS, which=NODES, boot=BOOTS, ahead=st.sampled_from([0, 0, 0, 1, 7]), forgot=st.booleans())
    def claim(self, slot: int, which: int, boot: str, *, ahead: int, forgot: bool) -> None:
        node = self.node_ids[which]
        self.attempt(self.processes[slot], node, boot, seen=0 if forgot else self.seen[node] + ahead)

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

    @precondition(lambda self: any(self.live(row.owner) for row in self.rows.values()))
    @rule(data=st.data(), slot=SLOTS, rounds=st.integers(1, 3))
    def two_boots_fight(self, data: st.DataObject, slot: int, rounds: int) -> None:
        """Each takes the node from the other, as two copies of one worker do."""
        node = data.draw(
            st.sampled_from(sorted(node for node, row in self.rows.items() if self.live(row.owner)))
        )
        for _ in range(rounds):
            other = "worker-boot-2" if self.rows[node].boot == "worker-boot-1" else "worker-boot-1"
            self.attempt(self.processes[slot], node, other, seen=0)

    @rule(which=NODES)
    def claims_at_once(self, which: int) -> None:
        node = self.node_ids[which]
        row = self.rows.get(node)
        boot = row.boot or "worker-boot-1" if row else "worker-boot-1"
        self.count("claims at once")
        racing = (self.processes[0], self.processes[2])

        async def race() -> list[Claim]:
            return list(
                await asyncio.gather(
                    *(
                        process.registry.claim(node, seen_epoch=self.seen[node], boot_id=boot)
                        for process in racing
                    )
                )
            )

        order = sorted(zip(racing, self.run(race()), strict=True), key=lambda pair: pair[1].epoch)
        floor = self.seen[node]
        for process, claim in order:
            self.took(process, node, boot, claim, floor=floor)
        # Who won is the scheduler's choice and hypothesis must not see it: one more claim settles the owner.
        settled = self.run(racing[0].registry.claim(node, seen_epoch=0, boot_id=boot))
        self.took(racing[0], node, boot, settled, floor=0)

    @rule(slot=SLOTS, which=NODES, boot=BOOTS)
    def leap(self, slot: int, which: int, boot: str) -> None:
        node = self.node_ids[which]
        row = self.rows.get(node)
        if row is not None and row.damped and self.fights(node, boot):
            return
        self.count("leap")
        with pytest.raises(EpochLeap):
            self.run(
                self.processes[slot].registry.claim(
                    node, seen_epoch=self.latest() + EPOCH_LEAP_MAX + 1, boot_id=boot
                )
            )

    def latest(self) -> int:
        row = self.run(self.world.database.row("SELECT last_value AS latest FROM connection_epochs"))
        return int(row["latest"])

    @rule(slot=SLOTS, which=NODES, off=st.sampled_from([0, 0, 0, 1]))
    def release(self, slot: int, which: int, off: int) -> None:
        process, node = self.processes[slot], self.node_ids[which]
        row = self.rows.get(node)
        epoch = (row.epoch if row else 1) - off
        expected = row is not None and row.owner == process.id and row.epoch == epoch
        self.count("release of what is held" if expected else "release of what is not held")
        assert self.run(process.registry.release(node, epoch)) is expected
        if expected and row is not None:
            self.depart(row)
            process.sessions.pop(node, None)

    @precondition(lambda self: bool(self.owning()))
    @rule(data=st.data())
    def session_ends(self, data: st.DataObject) -> None:
        self.count("release")
        slot, node = data.draw(st.sampled_from(self.owning()))
        process = self.processes[slot]
        assert self.run(process.registry.release(node, process.sessions.pop(node))) is True
        self.depart(self.rows[node])

    @precondition(lambda self: any(self.speaks(process) for process in self.processes))
    @rule(data=st.data())
    def reassert(self, data: st.DataObject) -> None:
        self.settle(data.draw(st.sampled_from([each for each in self.processes if self.speaks(each)])))

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

    @precondition(lambda self: bool(self.owning()))
    @rule(data=st.data(), beats=st.sampled_from([True, True, True, False]))
    def session_ends_unrecorded(self, data: st.DataObject, *, beats: bool) -> None:
        self.count("session ends unrecorded")
        slot, node = data.draw(st.sampled_from(self.owning()))
        process = self.processes[slot]
        del process.sessions[node]
        self.age(
            "UPDATE connections SET connected_at = connected_at - %(by)s * interval '1 s' WHERE node_id = %(id)s",
            node,
            600,
        )
        self.rows[node].settled = True
        if beats and self.speaks(process):
            self.settle(process)

    # Housekeeping and time

    @rule(slot=SLOTS)
    def sweep(self, slot: int) -> None:
        swept = self.run(self.processes[slot].registry.sweep())
        cleared = [
            (node, row.owner) for node, row in self.rows.items() if row.owner and not self.live(row.owner)
        ]
        dead = sorted(key for key, row in self.replicas.items() if not row.live)
        self.count("sweep" if cleared or dead else "sweep of nothing")
        assert sorted(swept.cleared) == sorted(cleared)
        assert sorted(swept.deleted) == dead
        for node, _ in cleared:
            self.depart(self.rows[node])
        for key in dead:
            del self.replicas[key]

    @rule(slot=SLOTS)
    def purge(self, slot: int) -> None:
        self.forget_departed(self.processes[slot])

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

    @precondition(lambda self: any(row.departed_for is not None for row in self.rows.values()))
    @rule(
        data=st.data(),
        by=st.sampled_from([WIDE.reconnect_grace_s, WIDE.departed_retention_s]),
        purges=st.booleans(),
    )
    def time_passes_over_a_departure(self, data: st.DataObject, by: float, *, purges: bool) -> None:
        self.count("time passes over a departure")
        departed = sorted(node for node, row in self.rows.items() if row.departed_for is not None)
        node = data.draw(st.sampled_from(departed))
        self.age(
            "UPDATE connections SET disconnected_at = disconnected_at - %(by)s * interval '1 s' WHERE node_id = %(id)s",
            node,
            by,
        )
        row = self.rows[node]
        assert row.departed_for is not None
        row.departed_for += by
        if purges:
            self.forget_departed(self.processes[0])

    @precondition(lambda self: any(row.damped for row in self.rows.values()))
    @rule()
    def damping_ends(self) -> None:
        self.count("damping ends")
        for node, row in self.rows.items():
            if row.damped:
                self.age(
                    "UPDATE connections SET boot_changed_at = boot_changed_at - %(by)s * interval '1 s' WHERE node_id = %(id)s",
                    node,
                    600,
                )
                row.damped = False

    @precondition(lambda self: bool(self.rows))
    @rule(data=st.data())
    def row_comes_from_an_older_copy(self, data: st.DataObject) -> None:
        self.count("row comes from an older copy")
        node = data.draw(st.sampled_from(sorted(self.rows)))
        assert (
            self.run(
                self.world.database.change("DELETE FROM connections WHERE node_id = %(id)s", {"id": node})
            )
            == 1
        )
        del self.rows[node]

    def age(self, query: str, key: str, by: float) -> None:
        assert self.run(self.world.database.change(query, {"id": key, "by": by})) == 1

    # What must be so after every step

    @invariant()
    def rows_and_presence_are_the_models(self) -> None:
        found = self.run(
            self.world.database.rows(
                _PRESENCES.replace("SELECT c.node_id,", "SELECT c.node_id, c.owner, c.epoch, c.conflicts,"),
                presence_windows(WIDE),
            )
        )
        read = {
            row["node_id"]: (row["owner"], row["epoch"], row["conflicts"], presence_of(presence_facts(row)))
            for row in found
        }
        expected = {
            node: (row.owner, row.epoch, row.conflicts, self.presence(row)) for node, row in self.rows.items()
        }
        assert read == expected

    @rule(which=NODES)
    def ask_the_owner(self, which: int) -> None:
        node = self.node_ids[which]
        row = self.rows.get(node)
        owner = self.run(self.processes[0].registry.owner(node))
        if row is not None and row.owner and self.live(row.owner):
            self.count("owner")
            assert owner is not None
            assert (owner.instance_id, owner.epoch) == (row.owner, row.epoch)
        else:
            self.count("no owner")
            assert owner is None

    def presence(self, row: NodeRow) -> Presence:
        if row.owner:
            return Presence.CONNECTED if self.live(row.owner) else Presence.RECONNECTING
        assert row.departed_for is not None
        return Presence.GONE if row.departed_for >= WIDE.reconnect_grace_s else Presence.RECONNECTING


EVERY_RULE = {
    "register",
    "heartbeat",
    "heartbeat of a replaced process",
    "heartbeat of a swept replica",
    "die",
    "leave",
    "claim",
    "claim of a second boot",
    "claim refused to a second boot",
    "claims at once",
    "leap",
    "release",
    "release of what is held",
    "release of what is not held",
    "keep",
    "retake",
    "lose",
    "orphan",
    "session ends unrecorded",
    "sweep",
    "sweep of nothing",
    "purge",
    "purge of nothing",
    "time passes over a departure",
    "damping ends",
    "row comes from an older copy",
    "owner",
    "no owner",
}


@pytest.mark.holds("B-7", "B-9", "B-12", "B-16")
def test_no_interleaving_breaks_ownership(url: str, request: pytest.FixtureRequest) -> None:
    number = options_of(request.config).seed
    print(f"hypothesis seed {number}; again with --bs-seed {number}")  # noqa: T201  # shown with a failure
    loop = asyncio.new_event_loop()
    world = World(loop, loop.run_until_complete(Database.open(url, timings=WIDE, name="machine")))

    class Here(Ownership):
        pass

    Here.world = world
    try:
        run_state_machine_as_test(
            seed(number)(Here),
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
            _min_steps=STEPS,
        )
    finally:
        loop.run_until_complete(world.database.close())
        loop.close()
    assert world.examples >= EXAMPLES, f"only {world.examples} examples ran"
    print(dict(sorted(world.fired.items(), key=lambda item: item[1])))  # noqa: T201  # shown with a failure
    assert set(world.fired) == EVERY_RULE, f"never fired: {EVERY_RULE - set(world.fired)}"
