"""The gate: what a green run must have proven."""

from __future__ import annotations

import pytest

from blackstart.core.gate import Counts, GateError, objections, required_capabilities, switched_on


@pytest.mark.holds("B-204")
@pytest.mark.parametrize("off", ["", "0", "false", "FALSE", "off", "no", "n", "disabled", " none "])
def test_the_off_words_switch_off(off: str) -> None:
    assert not switched_on(off)
    assert not switched_on(None)


@pytest.mark.holds("B-204")
@pytest.mark.parametrize("on", ["1", "true", "yes", "on", "ture", "flase", "2", "github"])
def test_a_switch_that_cannot_be_read_is_on(on: str) -> None:
    assert switched_on(on), "an unparseable switch reads as on"


@pytest.mark.holds("B-205")
def test_a_run_where_everything_was_skipped_is_objected_to_under_ci() -> None:
    skipped = Counts(collected=7, skipped=7)
    [objection] = objections(skipped, ci=True, required=(), missing={})
    assert "every one of the 7 specs was skipped" in objection
    assert objections(skipped, ci=False, required=(), missing={}) == []


@pytest.mark.holds("B-205")
def test_a_run_whose_selection_is_empty_is_objected_to_under_ci() -> None:
    [objection] = objections(Counts(collected=7), ci=True, required=(), missing={})
    assert "none of the 7 collected specs ran" in objection


def test_a_run_that_proved_something_is_let_through() -> None:
    assert objections(Counts(collected=7, passed=1, skipped=6), ci=True, required=(), missing={}) == []
    assert objections(Counts(collected=7, failed=1), ci=True, required=(), missing={}) == []


@pytest.mark.holds("B-204")
def test_a_required_capability_that_is_missing_is_objected_to_with_or_without_ci() -> None:
    for ci in (True, False):
        [objection] = objections(
            Counts(collected=7, passed=7),
            ci=ci,
            required=("container", "strace"),
            missing={"container": "no engine answers at /var/run/docker.sock", "netns": "not allowed"},
        )
        assert "container" in objection
        assert "no engine answers" in objection


def test_somebody_elses_run_is_none_of_our_business() -> None:
    assert objections(Counts(collected=0), ci=True, required=("container",), missing={"container": "x"}) == []


def test_required_names_are_known_names_each_once() -> None:
    assert required_capabilities(" container, strace,container,") == ("container", "strace")
    assert required_capabilities(None) == ()
    with pytest.raises(GateError, match=r"BLACKSTART_REQUIRE=docker: not a capability; try: .*container"):
        required_capabilities("docker")
