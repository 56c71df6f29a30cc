"""What became of each spec, kept where the run is judged: in a plain session itself, else in xdist's controller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from blackstart.core.gate import Counts
from blackstart.core.tally import SpecResult
from blackstart.core.verdicts import Verdict, gravest

if TYPE_CHECKING:
    import pytest


@dataclass
class SpecRecord:
    """One spec's phases as its reports told them."""

    nodeid: str
    outcomes: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """`failed` when any phase failed, `skipped` when one was skipped, `passed` when the call passed."""
        if "failed" in self.outcomes.values():
            return "failed"
        if "skipped" in self.outcomes.values():
            return "skipped"
        return "passed" if self.outcomes.get("call") == "passed" else "unfinished"

    @property
    def inconclusive(self) -> str:
        """What the machine did that may have caused the failure; empty for nothing."""
        return str(self.facts.get("inconclusive", ""))

    @property
    def verdicts(self) -> list[Verdict]:
        """The product's and the harness's, both."""
        told = []  # xdist reports a spec whose worker died with the phase "???"
        if self.outcomes.get("call") in {"passed", "failed"}:
            told.append(Verdict.INCONCLUSIVE if self.inconclusive else Verdict(self.outcomes["call"]))
        elif "skipped" in self.outcomes.values():
            told.append(Verdict.SKIPPED)
        if "failed" in {self.outcomes.get(phase) for phase in ("setup", "teardown", "???")}:
            told.append(Verdict.HARNESS_FAILURE)
        return told


class Ledger:
    """Collects reports; `collected` and `deselected` are told by whoever collects."""

    def __init__(self) -> None:
        self.specs: dict[str, SpecRecord] = {}
        self.collected = 0
        self.deselected = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a spec, wherever it ran."""
        record = self.specs.setdefault(report.nodeid, SpecRecord(report.nodeid))
        record.outcomes[report.when] = report.outcome
        record.facts.update(getattr(report, "blackstart", {}))

    @property
    def marked(self) -> list[SpecRecord]:
        """The specs that carry a blackstart marker."""
        return [record for record in self.specs.values() if record.facts.get("marked")]

    @property
    def on_container(self) -> list[SpecRecord]:
        """The specs that ran with their fleet's database in a container; to need an engine alone does not count."""
        return [
            record
            for record in self.specs.values()
            if record.outcome in {"passed", "failed"} and record.facts.get("postgres") == "container"
        ]

    def counts(self) -> Counts:
        """For the gate."""
        outcomes = [record.outcome for record in self.marked]
        return Counts(
            collected=self.collected,
            passed=outcomes.count("passed"),
            failed=outcomes.count("failed"),
            skipped=outcomes.count("skipped"),
        )

    def results(self) -> list[SpecResult]:
        """For the tally."""
        return [
            SpecResult(
                record.nodeid,
                record.outcome,
                tuple(record.facts.get("holds", ())),
                tuple(record.facts.get("skipped_for", ())),
            )
            for record in self.specs.values()
        ]

    def verdict(self) -> Verdict:
        """Of the whole run."""
        return gravest(verdict for record in self.specs.values() for verdict in record.verdicts)
