"""The window of attempts, in memory that does not grow."""

from __future__ import annotations

import pytest

from inference_fleet.auth import Limiter


@pytest.mark.holds("B-152")
def test_five_attempts_a_window_from_one_address_and_the_sixth_is_told_when() -> None:
    limiter = Limiter(window_s=60.0)
    assert [limiter.retry_after("1.2.3.4", now=float(at)) for at in range(5)] == [None] * 5
    assert limiter.retry_after("1.2.3.4", now=10.0) == 50.0, "the sixth attempt within the window"
    assert limiter.retry_after("5.6.7.8", now=10.0) is None, "another address is another window"
    assert limiter.retry_after("1.2.3.4", now=60.0) is None, "the first attempt has left the window"
    assert limiter.retry_after("1.2.3.4", now=60.5) is not None, "the window slides, it does not reset"


def test_a_refused_attempt_does_not_lengthen_the_wait() -> None:
    limiter = Limiter(window_s=60.0, attempts=1)
    limiter.retry_after("a", now=0.0)
    assert [limiter.retry_after("a", now=at) for at in (10.0, 20.0, 30.0)] == [50.0, 40.0, 30.0]


def test_a_flood_of_addresses_costs_memory_once() -> None:
    limiter = Limiter(window_s=60.0, attempts=1, addresses=100)
    for number in range(10_000):
        limiter.retry_after(str(number), now=0.0)
    assert len(limiter) == 100, "the table of addresses is bounded"
    assert limiter.retry_after("9999", now=1.0) is not None, "the newest are remembered"
    assert limiter.retry_after("0", now=1.0) is None, "the oldest are forgotten, which locks nobody out"
