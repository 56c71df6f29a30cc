"""Two classes of outcome, both kept."""

from __future__ import annotations

from blackstart.core.verdicts import EXIT_CODES, PhaseResult, Verdict, gravest, judge_spec


def test_a_pass_needs_every_phase() -> None:
    verdict = judge_spec(
        [PhaseResult("setup", "passed"), PhaseResult("call", "passed"), PhaseResult("teardown", "passed")]
    )
    assert verdict.green
    assert verdict.verdicts == (Verdict.PASSED,)


def test_an_error_in_tear_down_joins_the_products_verdict_and_never_replaces_it() -> None:
    for outcome, product in (("passed", Verdict.PASSED), ("failed", Verdict.FAILED)):
        verdict = judge_spec(
            [
                PhaseResult("setup", "passed"),
                PhaseResult("call", outcome, "owner was frontend-1"),
                PhaseResult("teardown", "failed", "a process was left behind"),
            ]
        )
        assert verdict.product is product
        assert verdict.verdicts == (product, Verdict.HARNESS_FAILURE)
        assert verdict.harness == ("teardown: a process was left behind",)
        assert not verdict.green


def test_a_failure_while_the_machine_stood_still_is_inconclusive_and_a_pass_stays_one() -> None:
    still = "the machine stood still for 4.5 s"
    failed = judge_spec([PhaseResult("setup", "passed"), PhaseResult("call", "failed", "late", still)])
    assert failed.product is Verdict.INCONCLUSIVE
    assert not failed.green
    assert judge_spec([PhaseResult("call", "passed", machine=still)]).product is Verdict.PASSED
    assert judge_spec([PhaseResult("call", "failed", "late")]).product is Verdict.FAILED


def test_an_error_in_set_up_says_nothing_about_the_product() -> None:
    verdict = judge_spec([PhaseResult("setup", "failed", "no Postgres"), PhaseResult("teardown", "passed")])
    assert verdict.product is None
    assert verdict.verdicts == (Verdict.HARNESS_FAILURE,)


def test_a_skip_is_neither_a_pass_nor_green() -> None:
    verdict = judge_spec([PhaseResult("setup", "skipped", "no container engine")])
    assert verdict.product is Verdict.SKIPPED
    assert not verdict.green


def test_a_run_is_as_good_as_its_gravest_verdict_and_nothing_is_no_pass() -> None:
    assert gravest([Verdict.PASSED, Verdict.FAILED, Verdict.HARNESS_FAILURE]) is Verdict.FAILED
    assert gravest([Verdict.PASSED, Verdict.INCONCLUSIVE]) is Verdict.INCONCLUSIVE
    assert gravest([Verdict.PASSED, Verdict.SKIPPED]) is Verdict.PASSED
    assert gravest([]) is Verdict.HARNESS_FAILURE


def test_every_verdict_has_an_exit_code_and_inconclusive_is_not_green() -> None:
    assert set(EXIT_CODES) == set(Verdict)
    assert EXIT_CODES[Verdict.INCONCLUSIVE] == 3
