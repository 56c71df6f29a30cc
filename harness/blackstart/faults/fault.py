"""A fault is set up, put in, seen, taken out and seen gone; one nobody saw proves nothing.

`setup -> inject -> confirm -> lift -> confirm lifted -> cleanup`. How to undo it is in the ledger before it is put in.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, ClassVar

from blackstart.core.deadline import Pace, seconds
from blackstart.core.fault import Evidence, FaultNotConfirmed, FaultNotLifted, Finding
from blackstart.record import ChargeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blackstart.record import Journal, Ledger
    from blackstart.record.ledger import Charge


class Fault(ABC):
    """One thing that can be done to a cluster and taken back. Each method is called once, in order, by `standing`."""

    family: ClassVar[str]

    @abstractmethod
    def describe(self) -> str:
        """What it does to whom, in one phrase."""

    def setup(self) -> None:  # noqa: B027 - most have nothing to set up
        """Make what it needs. Nothing is hurt yet."""

    def undo(self) -> tuple[str, ...]:
        """The command that takes it back when everybody who knows of it is dead; empty when their end does."""
        return ()

    @abstractmethod
    def inject(self) -> None:
        """Put it in."""

    @abstractmethod
    def confirm(self) -> Evidence:
        """Look once for its effect."""

    @abstractmethod
    def lift(self) -> None:
        """Take it out."""

    @abstractmethod
    def confirm_lifted(self) -> Evidence:
        """Look once for the absence of its effect."""

    def cleanup(self) -> None:  # noqa: B027 - see setup
        """Take away what `setup` made."""


class Standing:
    """A fault that is in. `confirm` may be called where its effect shows late; the end of the block calls it anyway."""

    def __init__(self, fault: Fault, note: Callable[..., None], *, within_s: float) -> None:
        self.fault = fault
        self.evidence = Evidence(Finding.INCONCLUSIVE, "nobody has looked yet")
        self._note = note
        self._within_s = within_s

    def confirm(self, *, within_s: float | None = None) -> Evidence:
        """Look until the effect is seen; `FaultNotConfirmed` if it is not."""
        if not self.evidence.confirmed:
            self.evidence = _look(self.fault.confirm, within_s=within_s or self._within_s)
            self._note("confirm", self.evidence)
        if not self.evidence.confirmed:
            raise FaultNotConfirmed(
                f"{self.fault.describe()}: {self.evidence}; try: make something happen that the fault would hit,"
                " before the block ends"
            )
        return self.evidence


@contextmanager
def standing(
    fault: Fault,
    *,
    journal: Journal,
    ledger: Ledger,
    user: int | None,
    within_s: float,
    spec: str | None = None,
    late: bool = False,
) -> Iterator[Standing]:
    """Inside the block the fault is in.

    Args:
        fault: what is put in.
        journal: each step is an event of kind `fault`.
        ledger: holds the undo before the fault is put in.
        user: the pid the undo belongs to; `None` for the run's.
        within_s: how long each of the two looks may take.
        spec: whom the events belong to.
        late: its effect shows only once something happens in the block, so it is looked for at the end.

    Raises:
        FaultNotConfirmed: its effect was not seen. When the block failed by itself that failure stands, with a note.
        FaultNotLifted: its effect is still there afterwards.
    """
    seconds("within_s", within_s)

    def note(step: str, evidence: Evidence | None = None) -> None:
        journal.write(
            "fault",
            spec=spec,
            family=fault.family,
            fault=fault.describe(),
            step=step,
            finding=None if evidence is None else evidence.finding.value,
            seen=None if evidence is None else evidence.seen,
        )

    fault.setup()
    with ExitStack() as ends:
        ends.callback(fault.cleanup)
        undo = fault.undo()
        charge = ledger.intend(ChargeKind.UNDO, user=user, argv=undo) if undo else None
        stands = Standing(fault, note, within_s=within_s)
        note("inject")
        try:
            fault.inject()
            if charge is not None:
                ledger.began(charge)
            if not late:
                stands.confirm()
            yield stands
            stands.confirm()
        except BaseException as error:
            if not isinstance(error, FaultNotConfirmed) and not stands.evidence.confirmed:
                error.add_note(f"the fault was not confirmed: {fault.describe()}: {stands.evidence}")
            try:
                _take_out(fault, ledger, charge, note, within_s=within_s)
            except Exception as trouble:  # noqa: BLE001 - what the block failed with is the verdict; this joins it
                error.add_note(f"and the fault was not taken out: {trouble}")
            raise
        _take_out(fault, ledger, charge, note, within_s=within_s)


def _take_out(
    fault: Fault, ledger: Ledger, charge: Charge | None, note: Callable[..., None], *, within_s: float
) -> None:
    fault.lift()
    evidence = _look(fault.confirm_lifted, within_s=within_s)
    note("lift", evidence)
    if evidence.finding is Finding.MISMATCH:
        raise FaultNotLifted(f"{fault.describe()}: {evidence}; try: end the nodes it was put on")
    if charge is not None:
        ledger.ended(charge, reason=str(evidence))


def _look(probe: Callable[[], Evidence], *, within_s: float) -> Evidence:
    deadline = time.monotonic() + within_s
    pace = Pace(budget_s=within_s)
    while True:
        evidence = probe()
        remaining_s = deadline - time.monotonic()
        if evidence.confirmed or remaining_s <= 0:
            return evidence
        time.sleep(pace.next_s(remaining_s=remaining_s))
