"""What a spec came to: the product's verdict and the harness's own failures, kept apart and both kept.

| verdict | about | means | exit code |
|---|---|---|---|
| `passed` | the product | its assertions held | 0 |
| `failed` | the product | an assertion did not hold | 1 |
| `inconclusive` | the machine | what was seen proves nothing either way; never a pass | 3 |
| `skipped` | the machine | a named capability is not here | 0 |
| `harness-failure` | the harness | set-up, tear-down or a leak; joins a product verdict, never replaces it | 4 |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Verdict(StrEnum):
    """The closed vocabulary of the journal's `verdict` events."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    SKIPPED = "skipped"
    HARNESS_FAILURE = "harness-failure"


EXIT_CODES = {
    Verdict.PASSED: 0,
    Verdict.SKIPPED: 0,
    Verdict.FAILED: 1,
    Verdict.INCONCLUSIVE: 3,
    Verdict.HARNESS_FAILURE: 4,
}

_GRAVEST_FIRST = (
    Verdict.FAILED,
    Verdict.HARNESS_FAILURE,
    Verdict.INCONCLUSIVE,
    Verdict.PASSED,
    Verdict.SKIPPED,
)


@dataclass(frozen=True)
class PhaseResult:
    """One phase of one spec: `setup`, `call` or `teardown` with `passed`, `failed` or `skipped`, and its text.

    `machine` says what the machine did meanwhile that may have caused a failure; empty for nothing.
    """

    phase: str
    outcome: str
    text: str = ""
    machine: str = ""


@dataclass(frozen=True)
class SpecVerdict:
    """The product's verdict (`None` when no assertion was reached) beside every failure of the harness."""

    product: Verdict | None
    harness: tuple[str, ...] = ()

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All that is to be told, the product's first."""
        product = () if self.product is None else (self.product,)
        return product + ((Verdict.HARNESS_FAILURE,) if self.harness else ())

    @property
    def green(self) -> bool:
        """Only a pass with nothing else beside it."""
        return self.product is Verdict.PASSED and not self.harness


def judge_spec(phases: Iterable[PhaseResult]) -> SpecVerdict:
    """Phases to verdict: only the call speaks of the product; errors around it are the harness's."""
    product: Verdict | None = None
    harness: list[str] = []
    for phase in phases:
        if phase.outcome == "skipped":
            product = product or Verdict.SKIPPED
        elif phase.phase == "call":
            product = _of_call(phase)
        elif phase.outcome == "failed":
            harness.append(f"{phase.phase}: {phase.text}")
    return SpecVerdict(product, tuple(harness))


def _of_call(phase: PhaseResult) -> Verdict:
    """What held, held; a failure the machine may have caused proves nothing either way."""
    if phase.outcome == "passed":
        return Verdict.PASSED
    return Verdict.INCONCLUSIVE if phase.machine else Verdict.FAILED


def gravest(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a whole run: a failed product outranks all; no verdict at all is a harness failure."""
    present = set(verdicts)
    for verdict in _GRAVEST_FIRST:
        if verdict in present:
            return verdict
    return Verdict.HARNESS_FAILURE
