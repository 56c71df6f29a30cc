"""How an embedded system reaches pytest and the command line: found by entry point, never imported by name.

The entry point group is `blackstart.fleets`; each entry is an object with the three methods of `FleetFront`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from blackstart.core.commands import Command
    from blackstart.core.sentinel import Sentinel
    from blackstart.infra import Infra
    from blackstart.process import Spawner
    from blackstart.record import Journal, Run

GROUP = "blackstart.fleets"


@dataclass(frozen=True, kw_only=True)
class FleetRequest:
    """What a spec asked for, and the run it happens in; `arguments` are those of its `cluster` marker."""

    run: Run
    spawner: Spawner
    journal: Journal
    infra: Infra
    spec: str
    arguments: Mapping[str, Any]
    preset: str


class FleetFront(Protocol):
    """One system the harness can embed."""

    def fleet(self, request: FleetRequest) -> AbstractContextManager[Any]:
        """A started cluster for one spec; leaving the context ends it. Unknown arguments are a `ValueError`."""

    def sentinels(self, fleet: Any) -> Sequence[Sentinel]:
        """What this system's live processes must not leave behind, looked at before the cluster is ended."""

    def commands(self) -> Sequence[Command]:
        """Its sub-commands."""


def find_front() -> FleetFront | None:
    """The installed front; None where no system is embedded. Two are an error: nobody could say which is meant."""
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    if len(found) > 1:
        names = ", ".join(f"{entry.name} = {entry.value}" for entry in found)
        raise LookupError(f"entry points {GROUP}: {names}: one may be installed; try: uninstall the others")
    return cast("FleetFront", found[0].load()) if found else None
