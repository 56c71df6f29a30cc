"""All nodes of one topology: started in the order they need each other, found by name, ended together.

A cluster owns its nodes' address leases and folders. `close` ends whatever still runs and then says which process
had ended before without being asked to, so that a death nobody noticed still fails the spec it happened in.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from blackstart.cluster.lifecycle import State
from blackstart.cluster.node import Node, UnexpectedDeath
from blackstart.cluster.waiting import current
from blackstart.core.deadline import Budget
from blackstart.core.topology import Place
from blackstart.net import lease_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType

    from blackstart.core.topology import Group, Topology
    from blackstart.net import PortLease
    from blackstart.process import Spawner
    from blackstart.record import Journal, Run


class NoSuchNode(LookupError):
    """A name or an index that the topology does not have."""


class Cluster:
    """The processes of one topology within one run. Use it as a context manager: it starts on entry, closes on exit."""

    def __init__(
        self, topology: Topology, *, run: Run, spawner: Spawner, journal: Journal, spec: str
    ) -> None:
        """Leases every node's ports now, so that any node's command may name any other's address."""
        self.topology = topology
        self.run = run
        self.spawner = spawner
        self.journal = journal
        self.spec = spec
        self._closing = threading.Event()
        self._leases: list[PortLease] = []
        self._nodes: dict[str, Node] = {}
        try:
            self._make_nodes()
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Self:
        """Start everything; when one node fails the others are ended before the error is raised."""
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything. An error already under way stays the one that is raised, with deaths added as notes."""
        try:
            self.close()
        except UnexpectedDeath as died:
            if error is None:
                raise
            error.add_note(str(died))

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node, in the topology's order."""
        return tuple(self._nodes.values())

    def node(self, name: str, index: int | None = None) -> Node:
        """`node("app-1")`, or `node("app", 1)`; a name or an index that is not there is an error, never a default."""
        full = name if index is None else f"{name}-{index}"
        if (index is not None and index < 0) or full not in self._nodes:
            raise NoSuchNode(
                f"node {full}: is not in this cluster; try: one of {', '.join(self._nodes) or 'none'}"
            )
        return self._nodes[full]

    def group(self, service: str) -> tuple[Node, ...]:
        """The nodes of one service, by index."""
        found = tuple(node for node in self.nodes if node.service.name == service)
        if not found and service not in {group.service.name for group in self.topology.groups}:
            known = ", ".join(group.service.name for group in self.topology.groups)
            raise NoSuchNode(f"service {service}: is not in this cluster; try: one of {known}")
        return found

    @property
    def watch(self) -> tuple[Node, ...]:
        """What a wait depends on: the nodes that are meant to be running now."""
        return tuple(node for node in self.nodes if node.state in {State.READY, State.PAUSED, State.DIED})

    @property
    def dead(self) -> tuple[Node, ...]:
        """The nodes that ended although nobody asked them to."""
        return tuple(node for node in self.nodes if node.died)

    def start(self) -> None:
        """Start every node that is not running: stage after stage, the nodes of a stage side by side."""
        for stage in self.topology.stages():
            nodes = self._of(stage, {State.IDLE, State.DIED, State.FAILED})
            self._side_by_side([*(node.start for node in nodes), *self._beside(stage)])

    def stop(self) -> None:
        """Stop every running node gracefully, those that depend on others first."""
        for stage in reversed(self.topology.stages()):
            self._side_by_side([node.stop for node in self._of(stage, {State.READY})])

    def check(self) -> None:
        """Raise `UnexpectedDeath` when a process ended unasked."""
        if dead := self.dead:
            raise UnexpectedDeath("\n".join(node.describe_death() for node in dead))

    def close(self) -> None:
        """Kill what still runs, give the addresses back, and raise `UnexpectedDeath` for what had ended unasked before."""
        self._closing.set()
        reports = [node.describe_death() for node in self.dead]
        self.end()
        if reports:
            raise UnexpectedDeath("\n".join(reports))

    def end(self) -> None:
        """Kill what still runs and give the addresses back; deaths from before are not told."""
        self._closing.set()
        errors: list[Exception] = []
        for node in self.nodes:
            if node.alive or node.died:  # a dead one may have left children
                try:
                    node.kill()
                except Exception as error:  # noqa: BLE001 - the other nodes are ended first, then it is raised
                    errors.append(error)
        self._release()
        if errors:
            raise ExceptionGroup("nodes that could not be ended", errors)

    def note(self, text: str) -> None:
        """Write a line into the log of every running process: what the spec is doing at this moment."""
        for node in self.nodes:
            if node.alive:
                node.log.note(text)

    def _make_nodes(self) -> None:
        places: dict[str, Place] = {}
        for group in self.topology.groups:
            for index, name in enumerate(group.node_names):
                places[name] = Place(
                    name=name,
                    index=index,
                    ports=self._ports(name, group.service.ports),
                    data_dir=self.run.spec_dir(self.spec) / f"{name}.data",
                )
        for group in self.topology.groups:
            for name in group.node_names:
                others = {other: place for other, place in places.items() if other != name}
                self._nodes[name] = Node(
                    service=group.service,
                    place=replace(places[name], others=others),
                    spawner=self.spawner,
                    journal=self.journal,
                    run_dir=self.run.dir,
                    log_dir=self.run.spec_dir(self.spec),
                    spec=self.spec,
                    budget=self._budget,
                    cancelled=self._closing.is_set,
                )

    def _budget(self, name: str) -> float:
        """What the topology declares under the name, scaled like every wait."""
        return Budget(declared_s=self.topology.budget(name), factor=current().factor).total_s

    def _ports(self, name: str, count: int) -> tuple[int, ...]:
        if not count:
            return ()
        lease = lease_ports(count, run=self.run.id, purpose=name)
        self._leases.append(lease)
        return tuple(lease.ports)

    def _of(self, stage: Iterable[Group], states: set[State]) -> list[Node]:
        names = {group.service.name for group in stage}
        return [node for node in self.nodes if node.service.name in names and node.state in states]

    def _beside(self, stage: Sequence[Group]) -> Sequence[Callable[[], object]]:
        """What is done while the nodes of a stage start, those of the stages before it being ready; for whoever inherits."""
        del stage
        return ()

    def _side_by_side(self, acts: Sequence[Callable[[], object]]) -> None:
        if not acts:
            return
        with ThreadPoolExecutor(max_workers=len(acts), thread_name_prefix="blackstart-node") as pool:
            futures = [pool.submit(act) for act in acts]
            try:
                wait(futures)
            except BaseException:  # Ctrl-C: the starts under way see it at their next look
                self._closing.set()
                raise
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            first, *others = errors
            for other in others:
                first.add_note(f"also: {other}")
            raise first

    def _release(self) -> None:
        while self._leases:
            self._leases.pop().release()
