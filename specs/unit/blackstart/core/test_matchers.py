"""Matchers close the traps that make a check trivially true."""

from __future__ import annotations

import pytest

from blackstart.core.matchers import containing, is_not, matcher_of, one_of, present_and_empty, shown
from blackstart.core.observation import Probe


def test_anything_that_is_not_a_predicate_is_compared_for_equality() -> None:
    matcher = matcher_of("offline")
    assert matcher("offline")
    assert not matcher("unhealthy")
    assert not matcher(None)
    assert matcher.text == "== 'offline'"


def test_a_predicate_is_named_in_the_failure() -> None:
    def is_healthy(value: object) -> bool:
        return value == "healthy"

    assert matcher_of(is_healthy).text.endswith("is_healthy")
    assert matcher_of(Probe(lambda: 1, name="status of worker-0")).text == "Probe status of worker-0"
    assert matcher_of(lambda value: value == 1).text.startswith("the lambda at test_matchers.py:")


def test_a_predicate_that_answers_with_something_else_than_a_truth_value_is_a_mistake() -> None:
    """A list of matching rows is truthy or not for reasons nobody wrote down."""
    with pytest.raises(TypeError, match=r"returned \['x'\], which is not True or False"):
        matcher_of(lambda value: [value])("x")


@pytest.mark.holds("B-197")
def test_present_and_empty_tells_an_empty_key_from_one_that_is_not_there() -> None:
    matcher = present_and_empty("address", "http_address")
    assert matcher({"address": "", "http_address": "", "status": "healthy"})
    assert not matcher({"address": ""})
    assert not matcher({"address": "", "http_address": "10.0.0.1:80"})
    assert not matcher({"address": None, "http_address": ""})
    assert not matcher([])


@pytest.mark.parametrize("empty", [present_and_empty, one_of, lambda: containing("")])
def test_a_matcher_that_could_not_fail_or_could_not_match_is_refused(empty: object) -> None:
    assert callable(empty)
    with pytest.raises(ValueError, match="try: "):
        empty()


def test_sets_parts_and_differences() -> None:
    assert one_of("connected", "reconnecting")("reconnecting")
    assert not one_of("connected", "reconnecting")("gone")
    assert containing("no route")("503: no route to worker-0")
    assert not containing("no route")({"text": "no route"}.values().__iter__)
    assert containing(3)([1, 2, 3])
    assert is_not("healthy")("offline")
    assert not is_not("healthy")("healthy")


def test_what_is_shown_is_bounded_and_survives_a_broken_repr() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert len(shown("x" * 100_000)) < 500
    assert "(100002 characters)" in shown("x" * 100_000)
    assert shown(Broken()) == "<Broken, its repr raised RuntimeError>"
