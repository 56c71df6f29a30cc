"""Reports in, counts and verdicts out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from blackstart.core.verdicts import Verdict
from blackstart.pytest_plugin.ledger import Ledger

if TYPE_CHECKING:
    import pytest


def told(ledger: Ledger, nodeid: str, *phases: tuple[str, str], **facts: Any) -> None:
    for when, outcome in phases:
        report = SimpleNamespace(
            nodeid=nodeid, when=when, outcome=outcome, blackstart={"marked": True, **facts}
        )
        ledger.pytest_runtest_logreport(cast("pytest.TestReport", report))


def test_a_spec_passes_only_when_every_phase_did() -> None:
    ledger = Ledger()
    told(ledger, "whole", ("setup", "passed"), ("call", "passed"), ("teardown", "passed"), holds=["B-1"])
    told(ledger, "leaks", ("setup", "passed"), ("call", "passed"), ("teardown", "failed"), holds=["B-2"])
    told(ledger, "dies", ("setup", "passed"), ("???", "failed"), holds=["B-3"])
    told(ledger, "hangs", ("setup", "passed"), holds=["B-4"])
    assert {result.spec: result.outcome for result in ledger.results()} == {
        "whole": "passed",
        "leaks": "failed",
        "dies": "failed",
        "hangs": "unfinished",
    }


def test_both_verdicts_of_a_spec_are_kept() -> None:
    ledger = Ledger()
    told(ledger, "leaks", ("setup", "passed"), ("call", "passed"), ("teardown", "failed"))
    assert ledger.specs["leaks"].verdicts == [Verdict.PASSED, Verdict.HARNESS_FAILURE]
    assert ledger.verdict() is Verdict.HARNESS_FAILURE


def test_the_gate_counts_only_specs_with_a_marker_of_ours() -> None:
    ledger = Ledger()
    ledger.collected = 2
    told(ledger, "ours", ("setup", "skipped"))
    told(ledger, "theirs", ("setup", "passed"), ("call", "passed"), marked=False)
    counts = ledger.counts()
    assert (counts.collected, counts.passed, counts.skipped) == (2, 0, 1)


def test_a_spec_ran_on_a_container_where_its_fleets_database_was_in_one() -> None:
    ledger = Ledger()
    ran = (("setup", "passed"), ("call", "passed"))
    told(ledger, "on-one", *ran, postgres="container", needs=["container"])
    told(ledger, "needs-an-engine", *ran, needs=["container"])
    told(ledger, "on-the-runs", *ran, postgres="embedded")
    told(ledger, "skipped", ("setup", "skipped"), postgres="container", needs=["container"])
    assert [record.nodeid for record in ledger.on_container] == ["on-one"]
