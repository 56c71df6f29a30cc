"""Budgets and pauses, without a clock."""

from __future__ import annotations

import pytest

from blackstart.core.deadline import Budget, Pace


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
