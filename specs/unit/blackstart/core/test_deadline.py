"""Budgets and pauses, without a clock."""

from __future__ import annotations

import math

import pytest

from blackstart.core.deadline import Budget, Looks, Pace


def test_a_budget_is_what_was_declared_times_the_factor_and_says_so() -> None:
    assert Budget(declared_s=4).total_s == 4
    assert str(Budget(declared_s=4)) == "4 s"
    assert Budget(declared_s=4, factor=2.5).total_s == 10
    assert str(Budget(declared_s=4, factor=2.5)) == "10 s (4 s declared, time factor 2.5)"


def test_the_share_of_a_budget_that_was_used_counts_the_scaled_one() -> None:
    assert Budget(declared_s=4, factor=2.5).used_percent(5) == 50


@pytest.mark.parametrize("bad", [0, -0.1, float("nan"), float("-inf")])
def test_a_budget_nobody_could_wait_for_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="must be above 0 and finite"):
        Budget(declared_s=bad)
    with pytest.raises(ValueError, match="must be above 0 and finite"):
        Budget(declared_s=1, factor=bad)


def test_pauses_grow_to_a_share_of_the_budget_and_end_exactly_at_its_end() -> None:
    pace = Pace(budget_s=2)
    remaining_s, pauses = 2.0, []
    while remaining_s > 0:
        pauses.append(pace.next_s(remaining_s=remaining_s))
        remaining_s -= pauses[-1]

    assert sum(pauses) == pytest.approx(2)
    assert max(pauses) <= 2 / 40 + 1e-9
    assert 40 <= len(pauses) <= 60


def test_a_fixed_interval_is_kept_and_clipped_at_the_end() -> None:
    pace = Pace(budget_s=1, every_s=0.4)
    assert [pace.next_s(remaining_s=left) for left in (1, 0.6, 0.2, 0)] == [0.4, 0.4, 0.2, 0]


class _Told:
    """A clock that only a pause or a look moves."""

    def __init__(self) -> None:
        self.now, self.pauses = 100.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def looks(self, *, within: float, every: float) -> Looks:
        return Looks(until=self.now + within, every_s=every, clock=lambda: self.now, sleep=self.sleep)


def test_the_first_look_is_at_once_and_only_between_two_is_there_a_pause() -> None:
    told = _Told()
    seen = [told.now for turn, _ in zip(told.looks(within=1, every=0.25), range(3), strict=False)]
    assert seen == [100.0, 100.25, 100.5], "a pause came before the first look, or none between two"
    for _ in told.looks(within=1, every=0.25):
        break
    assert told.pauses[3:] == [], "who has seen enough was held up"


def test_a_turn_is_over_when_the_deadline_has_come_whatever_took_the_time() -> None:
    told = _Told()
    over = []
    for turn in told.looks(within=1, every=0.4):
        over.append(turn.over)
        if turn.over:
            break
    assert over == [False, False, False, True]
    for turn in told.looks(within=1, every=0.4):
        before = turn.over
        told.now += 1  # the look itself
        assert (before, turn.over) == (False, True), "the time that a look took is not counted"
        break


def test_turns_without_a_deadline_are_never_over() -> None:
    told = _Told()
    turns = zip(told.looks(within=math.inf, every=1e6), range(50), strict=False)
    assert not any(turn.over for turn, _ in turns)
