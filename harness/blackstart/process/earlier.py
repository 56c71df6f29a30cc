"""A new run ends what earlier runs could not: those whose guardian was killed itself, or whose machine was restarted."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blackstart.process.ending import Ended, end_charges
from blackstart.process.strays import Sought
from blackstart.record.identity import boot_id, identity_of
from blackstart.record.ledger import LEDGER_NAME, ChargeKind, Ledger, State, is_over, owed, read_ledger

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from blackstart.record.ledger import Charge


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What was done about one earlier run. `ended` is `None` where its users still live and it was left alone."""

    run_dir: Path
    ended: Ended | None

    def __str__(self) -> str:
        """One line for the summary."""
        if self.ended is None:
            return f"{self.run_dir}: its guardian is dead but its users are not; left alone"
        return f"{self.run_dir}: its guardian was killed; ended {self.ended.found} processes it left"


def sweep_earlier(parent: Path, *, but: str | None = None) -> list[Swept]:
    """End what unguarded runs under `parent` left, by identity and by run tag; `but` is the id of the run that asks."""
    swept = []
    for ledger in sorted(parent.glob(f"*/{LEDGER_NAME}")):
        folder = ledger.parent
        if folder.is_symlink() or folder.name == but or is_over(folder):
            continue
        charges = read_ledger(folder)
        if not _unguarded(charges):
            continue
        if any(charge.kind is ChargeKind.USER and _lives(charge) for charge in charges.values()):
            swept.append(Swept(run_dir=folder, ended=None))
            continue
        with Ledger(folder) as pen:
            swept.append(Swept(run_dir=folder, ended=end_unguarded(folder.name, pen)))
    return swept


def end_unguarded(run_id: str, ledger: Ledger) -> Ended:
    """End what a run without a guardian owes, and write it off; a full disk keeps nothing from being ended."""
    charges = ledger.charges()
    due = [
        charge
        for charge in owed(charges)
        if charge.boot == boot_id() or charge.kind is ChargeKind.CONTAINER  # the rest ended with its boot
    ]
    ended = end_charges(due, sweep=Sought(run=run_id))
    if not ended.survivors:
        for charge in reversed(charges.values()):  # its guardian last: then it is over at a glance
            if charge.state is not State.ENDED:
                with contextlib.suppress(OSError):  # a later run looks for it once more and finds nothing
                    ledger.ended(charge, reason="its guardian was killed")
    return ended


def _unguarded(charges: Mapping[str, Charge]) -> bool:
    guardians = [charge for charge in charges.values() if charge.kind is ChargeKind.GUARDIAN]
    begun = [
        charge for charge in guardians if charge.state is State.BEGAN
    ]  # one that only intends is starting up
    return bool(begun) and not any(_lives(charge) for charge in begun)


def _lives(charge: Charge) -> bool:
    identity = charge.identity
    return (
        charge.state is State.BEGAN
        and identity is not None
        and charge.boot == boot_id()
        and identity_of(identity.pid) == identity
    )
