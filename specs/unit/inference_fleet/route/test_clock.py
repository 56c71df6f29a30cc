"""The clock replicas share."""

from __future__ import annotations

from inference_fleet.route import SharedClock


def test_it_goes_on_from_the_database_by_the_monotonic_clock_alone() -> None:
    monotonic = [50.0]
    clock = SharedClock(1000.0, monotonic=lambda: monotonic[0])
    monotonic[0] = 53.5
    assert clock.now() == 1003.5

    clock.observe(1010.0)
    monotonic[0] = 54.0

    assert clock.now() == 1010.5
