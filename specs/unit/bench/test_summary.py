"""Medians, spreads, and ratios that never leave their round."""

from __future__ import annotations

import pytest

from bench.summary import ratios, summarise


def test_a_summary_is_the_middle_and_the_ends() -> None:
    summary = summarise([3.0, 1.0, 2.0, 100.0, 2.5])
    assert (summary.median, summary.low, summary.high, summary.rounds) == (2.5, 1.0, 100.0, 5)
    assert summary.spread == pytest.approx(99 / 2.5)


def test_a_spread_over_nothing_is_nothing() -> None:
    assert summarise([0.0, 0.0]).spread == 0.0


def test_a_median_of_no_rounds_is_an_error() -> None:
    with pytest.raises(ValueError, match="no round gave this figure"):
        summarise([])


def test_a_ratio_is_to_the_control_of_its_own_round() -> None:
    # the machine was twice as fast in the second round, which no ratio shows
    assert ratios([100.0, 200.0], [1000.0, 2000.0]) == [0.1, 0.1]


def test_rounds_without_their_control_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 rounds over 1 rounds of the control"):
        ratios([1.0, 2.0], [1.0])
