"""A run with its guardian and a spawner, taken apart in the order that leaves nothing."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.process import Guardian, GuardianLease, Handle, Spawner
from blackstart.record import Journal, Run, identity_of, read_journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from blackstart.core.journal import Event

WITHIN_S = 10.0


@dataclass
class Yard:
    """Where a spec's processes live."""

    run: Run
    journal: Journal
    lease: GuardianLease
    spawner: Spawner
    log_dir: Path
    began_ns: int = field(default_factory=lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME))
    handles: list[Handle] = field(default_factory=list)

    def spawn(self, *argv: str, node: str = "node", incarnation: int = 1, **options: Any) -> Handle:
        handle = self.spawner.spawn(
            node=node, argv=argv, log_dir=self.log_dir, spec="spec", incarnation=incarnation, **options
        )
        self.handles.append(handle)
        return handle

    def events(self, kind: str) -> list[Event]:
        """This spec's own: the run may be shared."""
        return [
            event
            for event in read_journal(self.run.dir)
            if event.kind == kind and event.boot_ns >= self.began_ns
        ]


@contextmanager
def guarded(parent: Path) -> Iterator[tuple[Run, GuardianLease]]:
    run = Run.create(parent, argv=["pytest"])
    Guardian.start(run)
    with Guardian.connect(run) as lease:
        yield run, lease
    eventually(lambda: identity_of(lease.guardian_pid), None, within=WITHIN_S)


@contextmanager
def opened(run: Run, lease: GuardianLease, log_dir: Path) -> Iterator[Yard]:
    with Journal(run, writer="spec") as journal, Spawner(run, journal, lease, user=os.getpid()) as spawner:
        yard = Yard(run, journal, lease, spawner, log_dir)
        yield yard
        for handle in yard.handles:
            handle.kill(within=WITHIN_S)


@pytest.fixture(scope="module")
def guarded_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Run, GuardianLease]]:
    with guarded(tmp_path_factory.mktemp("logs")) as held:
        yield held


@pytest.fixture
def yard(guarded_run: tuple[Run, GuardianLease], tmp_path: Path) -> Iterator[Yard]:
    """A spawner of this spec's own, in a run that the module shares."""
    with opened(*guarded_run, tmp_path / "logs") as yard:
        yield yard


@pytest.fixture
def own_yard(tmp_path: Path) -> Iterator[Yard]:
    """The same in a run of its own, for specs that end it or its guardian."""
    with guarded(tmp_path) as (run, lease), opened(run, lease, tmp_path / "logs") as yard:
        yield yard
