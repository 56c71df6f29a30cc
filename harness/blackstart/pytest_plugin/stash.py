"""What the plugin's rooms leave on an item for each other."""

from __future__ import annotations

from typing import Any

import pytest

from blackstart.cluster.stall import StallWatch
from blackstart.core.verdicts import PhaseResult

PHASES = pytest.StashKey[list[PhaseResult]]()
"""The phases of the item so far."""

CLUSTERS = pytest.StashKey[list[Any]]()
"""The clusters the item's fixtures started."""


POSTGRES = pytest.StashKey[str]()
"""The provider of the server that the item's fleet has its database on."""

STALL = pytest.StashKey[StallWatch]()
"""What watches the machine while the item runs, where it asked for real processes."""


def failed_so_far(item: pytest.Item) -> bool:
    """Whether a phase of the item has failed."""
    return any(phase.outcome == "failed" for phase in item.stash.get(PHASES, []))
