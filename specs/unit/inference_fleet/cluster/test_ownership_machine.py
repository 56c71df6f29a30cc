"""Ownership under every interleaving hypothesis can think of, on a real Postgres, against a model in memory."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test
from psycopg import sql
from psycopg.rows import dict_row

from blackstart.pytest_plugin.options import options_of
from inference_fleet.cluster import EPOCH_LEAP_MAX, Claim, EpochLeap, InstanceIdTaken
from inference_fleet.cluster.presence import (
    PRESENCE_COLUMNS,
    PRESENCE_JOIN,
    presence_facts,
    presence_of,
    presence_windows,
)
from inference_fleet.store import Database, statement

from .ownership import WIDE, OwnershipModel, ReplicaRow, World

EXAMPLES, STEPS = 200, 50
_ROWS_AND_PRESENCES = sql.SQL(
    statement(  # of every row, since no node of the model is registered
        "SELECT n.id, c.owner, c.epoch, c.conflicts, $columns FROM (SELECT node_id AS id FROM connections) n $join",
        columns=PRESENCE_COLUMNS,
        join=PRESENCE_JOIN,
    )
)
SLOTS = st.sampled_from([0, 1, 2, 3])  # two replicas with two processes each
NODES = st.sampled_from([0, 1])
BOOTS = st.sampled_from(["worker-boot-1", "worker-boot-2"])


class Ownership(OwnershipModel):
    """Every rule does one thing to the database and the same to the model; then the two are compared."""

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

    @rule(slot=SLOTS, which=NODES, boot=BOOTS, ahead=st.sampled_from([0, 0, 0, 1, 7]), forgot=st.booleans())
    def claim(self, slot: int, which: int, boot: str, *, ahead: int, forgot: bool) -> None:
        node = self.node_ids[which]
        self.attempt(self.processes[slot], node, boot, seen=0 if forgot else self.seen[node] + ahead)

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
        assert self.world.aside.execute("DELETE FROM connections WHERE node_id = %s", [node]).rowcount == 1
        del self.rows[node]

    @invariant()
    def rows_and_presence_are_the_models(self) -> None:
        found = self.world.aside.execute(_ROWS_AND_PRESENCES, presence_windows(WIDE)).fetchall()
        read = {
            row["id"]: (row["owner"], row["epoch"], row["conflicts"], presence_of(presence_facts(row)))
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
    aside = psycopg.connect(url, autocommit=True, row_factory=dict_row)
    world = World(loop, loop.run_until_complete(Database.open(url, timings=WIDE, name="machine")), aside)

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
        aside.close()
    assert world.examples >= EXAMPLES, f"only {world.examples} examples ran"
    print(dict(sorted(world.fired.items(), key=lambda item: item[1])))  # noqa: T201  # shown with a failure
    assert set(world.fired) == EVERY_RULE, f"never fired: {EVERY_RULE - set(world.fired)}"
