"""A floor is held or named; a figure that is no number holds nothing."""

from __future__ import annotations

import math

import pytest

from bench.floors import BOUNDS, BY_FIGURE, OF_ANSWERS, OF_IDLE_TUNNELS, OF_STREAMS, Better, Bound, judge


def test_a_ratio_below_its_floor_is_missed_and_named() -> None:
    (judgement,) = judge("takeover/plain", {"down/raw": 0.169})
    assert not judgement.held
    assert str(judgement).startswith("MISSED takeover/plain down/raw: 0.169, floor at least 0.17")


def test_a_figure_on_its_floor_is_held() -> None:
    judged = judge("takeover/plain", {"down/raw": 0.17, "latency": 8.0})
    assert [judgement.held for judgement in judged] == [True, True]


def test_where_less_is_better_more_is_missed() -> None:
    (judgement,) = judge("takeover/plain", {"latency": 8.01})
    assert not judgement.held, "a worst request of more than eight times the idle median"


@pytest.mark.parametrize("figure", sorted(BY_FIGURE))
def test_what_is_no_number_holds_no_floor_and_reaches_no_goal(figure: str) -> None:
    (judgement,) = judge("takeover/plain", {figure: math.nan})
    assert not judgement.held
    assert not judgement.bound.reaches(judgement.value)


def test_a_figure_that_was_due_and_never_came_is_missed() -> None:
    found = judge("takeover/plain", {"down/raw": 0.2}, due=["down/raw", "streams"])
    assert [one.held for one in found] == [True, False], "a row that was lost holds its floor"
    assert str(found[1]).startswith("MISSED takeover/plain streams: nan")


def test_every_bound_is_due_of_some_bench() -> None:
    assert set(BY_FIGURE) == OF_STREAMS | OF_ANSWERS | OF_IDLE_TUNNELS


def test_figures_without_a_bound_are_not_judged() -> None:
    assert judge("takeover/plain", {"down": 5.0, "busy-count": 3.0}) == []


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.figure)
def test_every_goal_lies_beyond_its_floor(bound: Bound) -> None:
    further = bound.goal > bound.floor if bound.better is Better.HIGHER else bound.goal < bound.floor
    assert further
    assert bound.holds(bound.goal)
    assert not bound.reaches(bound.floor)
