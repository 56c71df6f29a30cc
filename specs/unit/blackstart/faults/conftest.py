"""A run of its own for specs that start real children: its folder, its guardian, its spawner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from blackstart.process import Guardian, Spawner
from blackstart.record import Journal, Run

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Rig:
    run: Run
    spawner: Spawner


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    run = Run.create(tmp_path_factory.mktemp("run"), argv=["specs"])
    Guardian.start(run)
    with (
        Guardian.connect(run) as lease,
        Journal(run, writer="specs") as journal,
        Spawner(run, journal, lease) as spawner,
    ):
        yield Rig(run, spawner)
