"""A drill's checks as facts: in a fixed order, each with one verdict, and what they come to together.

A failure the machine may have caused (it stood still meanwhile) proves nothing either way and is inconclusive; what
held, held. A check whose ground an earlier one should have prepared is not reached, which is inconclusive as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from blackstart.core.commands import ExitCode
from blackstart.core.verdicts import Verdict, gravest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path


class Finding(StrEnum):
    """What one check came to."""

    HELD = "HELD"
    FAILED = "FAILED"
    INCONCLUSIVE = "INCONCLUSIVE"


VERDICT_OF = {
    Finding.HELD: Verdict.PASSED,
    Finding.FAILED: Verdict.FAILED,
    Finding.INCONCLUSIVE: Verdict.INCONCLUSIVE,
}


class NotReached(Exception):
    """The ground for a check is missing because an earlier one did not hold."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check, judged."""

    id: str
    finding: Finding
    text: str

    def __str__(self) -> str:
        """`HELD <id> <text>`, always one line."""
        return f"{self.finding} {self.id} {' '.join(self.text.split())}"


@dataclass(frozen=True, kw_only=True)
class Step:
    """A check before it is made: `make` returns what was seen, or raises."""

    id: str
    make: Callable[[], str]


@dataclass(frozen=True, kw_only=True)
class Report:
    """All checks of one drill."""

    checks: tuple[Check, ...]
    seconds: float
    evidence: Path

    def count(self, finding: Finding) -> int:
        """How many came to this."""
        return sum(check.finding is finding for check in self.checks)

    @property
    def verdict(self) -> Verdict:
        """In the journal's words; a drill in which nothing was checked is the harness's failure."""
        return gravest(VERDICT_OF[check.finding] for check in self.checks)

    @property
    def exit_code(self) -> ExitCode:
        """A failure outranks everything; a drill in which nothing was checked proves nothing."""
        if self.count(Finding.FAILED):
            return ExitCode.FAILED
        if self.count(Finding.INCONCLUSIVE) or not self.checks:
            return ExitCode.INCONCLUSIVE
        return ExitCode.HELD

    def __str__(self) -> str:
        """The last line."""
        held, failed, inconclusive = (self.count(finding) for finding in Finding)
        return (
            f"drill: {held} held, {failed} failed, {inconclusive} inconclusive in {self.seconds:.1f} s; "
            f"evidence: {self.evidence}"
        )

    def as_json(self) -> dict[str, Any]:
        """The object of `--json`."""
        held, failed, inconclusive = (self.count(finding) for finding in Finding)
        return {
            "checks": [
                {"id": check.id, "verdict": str(check.finding), "text": check.text} for check in self.checks
            ],
            "held": held,
            "failed": failed,
            "inconclusive": inconclusive,
            "seconds": round(self.seconds, 3),
            "evidence": str(self.evidence),
        }


def carry_out(
    steps: Sequence[Step], *, failures: tuple[type[Exception], ...], stalled: Callable[[], str]
) -> Iterator[Check]:
    """Make each check in order and judge it; `stalled` says what the machine did during the check, "" for nothing.

    Only `failures` speak of the product. Anything else is the harness's own and ends the drill by being raised.
    """
    for step in steps:
        try:
            finding, text = Finding.HELD, step.make()
        except NotReached as missing:
            finding, text = Finding.INCONCLUSIVE, f"not reached: {missing}"
        except failures as failure:
            finding, text = Finding.FAILED, f"{type(failure).__name__}: {failure}"
        if (machine := stalled()) and finding is Finding.FAILED:
            finding, text = Finding.INCONCLUSIVE, f"{machine}; what was seen: {text}"
        yield Check(id=step.id, finding=finding, text=text)
