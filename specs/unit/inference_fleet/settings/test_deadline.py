"""A caller's remaining time: it only shortens, and it is never written as zero."""

from __future__ import annotations

import time

import pytest

from inference_fleet.settings import Deadline


def test_a_deadline_only_shortens() -> None:
    deadline = Deadline.after(100.0, now=time.monotonic())
    assert deadline.shorten(1000.0) == deadline
    assert deadline.shorten(1.0) < deadline
    assert deadline.shorten(1.0).remaining_s <= 1.0


@pytest.mark.holds("B-62")
def test_a_spent_deadline_writes_no_budget_and_a_live_one_at_least_a_millisecond() -> None:
    assert Deadline(at=0.0).expired
    assert Deadline(at=0.0).remaining_s == 0.0
    assert Deadline(at=0.0).budget_ms is None, "a literal zero would make a peer refuse healthy traffic"
    almost = Deadline.after(0.0005)
    assert almost.budget_ms in {1, None}
    left = Deadline.after(10.0).budget_ms
    assert left is not None
    assert 9_000 < left <= 10_000


@pytest.mark.holds("B-62")
def test_the_receiving_end_takes_the_shorter_of_its_own_limit_and_the_budget() -> None:
    now = time.monotonic()
    assert Deadline.from_budget_ms(500, longest_s=15.0).at - now < 1.0
    assert Deadline.from_budget_ms(60_000, longest_s=15.0).at - now <= 16.0
    assert Deadline.from_budget_ms(None, longest_s=15.0).at - now > 14.0
