"""A drill comes to what its checks come to, and a machine that stood still is never blamed on the product."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blackstart.core.commands import ExitCode
from blackstart.fleet.checks import Check, Finding, NotReached, Report, Step, carry_out

if TYPE_CHECKING:
    from collections.abc import Callable


def _report(*findings: Finding) -> Report:
    checks = tuple(
        Check(id=f"c{number}", finding=finding, text="x") for number, finding in enumerate(findings)
    )
    return Report(checks=checks, seconds=12.34, evidence=Path("/logs/r1"))


def _raises(error: Exception) -> Callable[[], str]:
    def make() -> str:
        raise error

    return make


def _one(make: Callable[[], str], *, machine: str = "") -> Check:
    (check,) = carry_out([Step(id="c", make=make)], failures=(AssertionError,), stalled=lambda: machine)
    return check


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        ((Finding.HELD, Finding.HELD), ExitCode.HELD),
        ((Finding.HELD, Finding.FAILED, Finding.INCONCLUSIVE), ExitCode.FAILED),
        ((Finding.HELD, Finding.INCONCLUSIVE), ExitCode.INCONCLUSIVE),
        ((), ExitCode.INCONCLUSIVE),
    ],
)
def test_a_drills_exit_code_is_its_gravest_check_and_nothing_checked_is_no_pass(
    findings: tuple[Finding, ...], code: ExitCode
) -> None:
    assert _report(*findings).exit_code is code


def test_the_last_line_counts_and_names_the_evidence() -> None:
    report = _report(Finding.HELD, Finding.HELD, Finding.FAILED)
    assert str(report) == "drill: 2 held, 1 failed, 0 inconclusive in 12.3 s; evidence: /logs/r1"
    told = json.loads(json.dumps(report.as_json()))
    assert set(told) == {"checks", "held", "failed", "inconclusive", "seconds", "evidence"}
    assert told["checks"][2] == {"id": "c2", "verdict": "FAILED", "text": "x"}


def test_what_held_held() -> None:
    assert str(_one(lambda: "all of\nit")) == "HELD c all of it"


def test_a_failed_assertion_is_a_failure_of_the_product() -> None:
    check = _one(_raises(AssertionError("texts differ")))
    assert (check.finding, check.text) == (Finding.FAILED, "AssertionError: texts differ")


def test_a_failure_while_the_machine_stood_still_is_inconclusive_and_keeps_what_was_seen() -> None:
    check = _one(_raises(AssertionError("texts differ")), machine="the machine stood still for 3.1 s")
    assert check.finding is Finding.INCONCLUSIVE
    assert "stood still" in check.text
    assert "texts differ" in check.text


def test_a_check_that_held_while_the_machine_stood_still_is_still_held() -> None:
    assert _one(lambda: "fine", machine="the machine stood still for 3.1 s").finding is Finding.HELD


def test_a_check_without_its_ground_is_not_reached_and_never_held() -> None:
    check = _one(_raises(NotReached("no owner was killed")))
    assert (check.finding, check.text) == (Finding.INCONCLUSIVE, "not reached: no owner was killed")


def test_an_error_of_the_harness_is_raised_and_no_verdict_about_the_product() -> None:
    with pytest.raises(ZeroDivisionError):
        _one(_raises(ZeroDivisionError()))


def test_later_checks_are_made_after_a_failure() -> None:
    steps = [Step(id="a", make=_raises(AssertionError("no"))), Step(id="b", make=lambda: "yes")]
    checks = list(carry_out(steps, failures=(AssertionError,), stalled=lambda: ""))
    assert [(check.id, check.finding) for check in checks] == [("a", Finding.FAILED), ("b", Finding.HELD)]
