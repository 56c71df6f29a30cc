from __future__ import annotations

import pytest

from inference_fleet.settings import Timings
from inference_fleet.tunnel import ReconnectSchedule

_T = Timings.production()
LOW, HIGH, RESET = _T.reconnect_backoff_min_s, _T.reconnect_backoff_max_s, _T.reconnect_reset_after_s


def _schedule(*draws: float) -> ReconnectSchedule:
    drawn = iter(draws)
    return ReconnectSchedule(min_s=LOW, max_s=HIGH, reset_after_s=RESET, draw=lambda: next(drawn))


@pytest.mark.holds("T-5")
def test_ceilings_double_up_to_the_cap() -> None:
    schedule = _schedule(*[1.0] * 200)
    waits = [schedule.next_wait_s() for _ in range(200)]
    assert waits[:7] == [LOW, 2 * LOW, 4 * LOW, 8 * LOW, 16 * LOW, HIGH, HIGH]
    assert set(waits[7:]) == {HIGH}


def test_the_jitter_is_applied_after_the_cap() -> None:
    schedule = _schedule(*[0.5] * 20)
    assert [schedule.next_wait_s() for _ in range(20)][-1] == HIGH / 2


def test_no_wait_is_below_the_minimum_or_above_the_maximum() -> None:
    schedule = _schedule(*[0.0, 0.999] * 20)
    assert all(LOW <= schedule.next_wait_s() <= HIGH for _ in range(40))


@pytest.mark.holds("B-22")
def test_a_session_that_lasted_resets_the_schedule_and_a_shorter_one_does_not() -> None:
    schedule = _schedule(*[1.0] * 12)
    for _ in range(8):
        schedule.next_wait_s()
    assert schedule.next_wait_s(lasted_s=RESET * 0.99) == HIGH
    assert schedule.next_wait_s(lasted_s=RESET) == LOW
    assert schedule.next_wait_s() == 2 * LOW
