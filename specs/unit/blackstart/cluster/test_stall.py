"""The machine stood still when a short sleep took seconds, and at no other time."""

from __future__ import annotations

from blackstart.cluster.stall import StallWatch


def test_a_sleep_within_the_bound_is_nothing_to_be_told() -> None:
    watch = StallWatch(every_s=0.1, bound_s=1.0)
    watch.saw(0.1)
    watch.saw(1.05)
    assert watch.take() == ""


def test_the_worst_stall_is_told_once_and_then_forgotten() -> None:
    watch = StallWatch(every_s=0.1, bound_s=1.0)
    watch.saw(2.1)
    watch.saw(4.6)
    watch.saw(1.2)
    assert watch.take() == "the machine stood still for 4.5 s"
    assert watch.take() == ""


def test_it_watches_by_itself_between_entry_and_exit() -> None:
    with StallWatch(every_s=0.001, bound_s=1000.0) as watch:
        assert watch.take() == ""
