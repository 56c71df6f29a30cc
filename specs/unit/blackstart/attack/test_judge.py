"""The judge, on facts written by hand."""

from __future__ import annotations

from typing import Any

import pytest

from blackstart.attack import Verdict
from blackstart.attack.judge import Trial, judge, not_green
from blackstart.attack.table import Mutation

SCRATCH = "/scratch"
ROW = Mutation(
    name="row",
    file="src/pkg/guard.py",
    find="a",
    replace="b",
    spec="specs/test_x.py::test_one",
    text="awaited",
)
END = {"fact": "end", "exitstatus": 1, "modules": {"pkg": "/scratch/src/pkg/__init__.py"}}


def phase(
    when: str, outcome: str, *, spec: str = ROW.spec, raised: Any = (), text: str = ""
) -> dict[str, Any]:
    return {
        "fact": "phase",
        "nodeid": spec,
        "when": when,
        "outcome": outcome,
        "seconds": 0.1,
        "raised": list(raised),
        "text": text,
    }


def raised(*types: str, file: str = "/scratch/specs/test_x.py") -> dict[str, Any]:
    return {"types": list(types), "file": file, "line": 1}


ASSERTED = raised("AssertionError", "Exception")


def judged(*facts: dict[str, Any], witnesses: Any = (), timed_out: bool = False) -> tuple[Verdict, str]:
    trial = Trial(facts=facts, witnesses=witnesses, timed_out=timed_out, exit_code=1)
    result = judge(ROW, trial, scratch=SCRATCH, mutated=["/scratch/src"])
    return result.verdict, result.reason


def failing(*raises: dict[str, Any], text: str = "E  awaited") -> list[dict[str, Any]]:
    return [phase("setup", "passed"), phase("call", "failed", raised=raises, text=text), END]


def test_its_own_assertion_with_the_text_is_red() -> None:
    assert judged(*failing(ASSERTED))[0] is Verdict.RED
    assert judged(*failing(raised("Failed", file="/lib/_pytest/raises.py")))[0] is Verdict.RED


def test_a_failed_wait_of_the_spec_is_its_own_assertion_wherever_the_wait_lives() -> None:
    wait = raised("WaitTimeout", "WaitFailed", "AssertionError", file="/scratch/src/pkg/waiting.py")
    assert judged(*failing(wait))[0] is Verdict.RED


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (failing(raised("KeyError", "Exception")), "by an error, not by its own assertion"),
        (failing(raised("AssertionError", file="/scratch/src/pkg/guard.py")), "not by its own assertion"),
        (failing(ASSERTED, text="E  something else"), "does not carry 'awaited'"),
        ([phase("setup", "failed", raised=[ASSERTED], text="E  awaited"), END], "set-up failed"),
        (
            [
                phase("setup", "passed"),
                phase("call", "passed"),
                phase("teardown", "failed", text="E  awaited"),
                END,
            ],
            "failed in teardown",
        ),
        ([phase("setup", "skipped", text="Skipped: no engine"), END], "skipped"),
        (
            [{"fact": "collect", "nodeid": "specs/test_x.py", "text": "E  SyntaxError"}, END],
            "does not collect",
        ),
        ([{"fact": "import", "error": "ImportError: x"}, *failing(ASSERTED)], "does not import: ImportError"),
        (failing(ASSERTED)[:-1], "did not come to its end"),
        ([END], "did not run"),
        (
            [
                phase(
                    "call", "failed", spec="specs/test_x.py::test_one_more", raised=[ASSERTED], text="awaited"
                ),
                END,
            ],
            "did not run",
        ),
    ],
)
def test_everything_else_that_is_not_a_pass_is_broken_and_says_why(
    facts: list[dict[str, Any]], told: str
) -> None:
    verdict, reason = judged(*facts)
    assert verdict is Verdict.BROKEN, "only its own assertion is red"
    assert told in reason


def test_a_time_out_is_broken_whatever_failed_meanwhile() -> None:
    assert judged(*failing(ASSERTED), timed_out=True) == (Verdict.BROKEN, "timed out")


def test_a_spec_that_passes_on_the_mutant_is_green() -> None:
    assert judged(phase("setup", "passed"), phase("call", "passed"), END)[0] is Verdict.GREEN


def test_a_process_that_ran_other_code_than_the_scratch_copy_is_broken() -> None:
    elsewhere = {
        "fact": "package",
        "pid": 7,
        "spec": ROW.spec,
        "name": "pkg",
        "origin": "/home/tree/src/pkg/__init__.py",
    }
    verdict, reason = judged(*failing(ASSERTED), witnesses=[elsewhere])
    assert verdict is Verdict.BROKEN, "other code ran"
    assert "process 7 ran pkg from /home/tree" in reason

    own = {
        "fact": "package",
        "pid": 7,
        "spec": ROW.spec,
        "name": "pkg",
        "origin": "/scratch/src/pkg/__init__.py",
    }
    assert judged(*failing(ASSERTED), witnesses=[own])[0] is Verdict.RED
    stray = {"fact": "stray", "pid": 7, "spec": "", "argv": ["python", "-m", "pkg"]}
    assert judged(*failing(ASSERTED), witnesses=[stray])[0] is Verdict.BROKEN
    of_another = {**elsewhere, "spec": "specs/test_x.py::test_two"}
    assert judged(*failing(ASSERTED), witnesses=[of_another])[0] is Verdict.RED
    other = {**END, "modules": {"pkg": "/home/tree/src/pkg/__init__.py"}}
    assert judged(*failing(ASSERTED)[:-1], other)[0] is Verdict.BROKEN


def test_a_spec_counts_as_green_only_when_every_phase_of_every_parameter_set_passed() -> None:
    def green(*facts: dict[str, Any]) -> str | None:
        return not_green(Trial(facts=facts, witnesses=()), ROW.spec, scratch=SCRATCH)

    passes = [phase(when, "passed") for when in ("setup", "call", "teardown")]
    assert green(*passes, END) is None
    assert green(END) is not None
    second = phase("call", "failed", spec=f"{ROW.spec}[second]", text="E  no")
    assert green(*passes, second, END) is not None
    assert green(*passes[:2], phase("teardown", "failed", text="E  leaks"), END) is not None
