"""No row is always first, and none always follows the same one."""

from __future__ import annotations

from bench.order import interleaved


def test_every_round_runs_every_step_once() -> None:
    steps = ["raw", "chain", "down", "up"]
    rounds = interleaved(steps, rounds=7)
    assert [sorted(one) for one in rounds] == [sorted(steps)] * 7


def test_a_round_begins_where_no_round_before_it_began() -> None:
    rounds = interleaved(["raw", "chain", "down", "up"], rounds=4)
    assert rounds[0] == ("raw", "chain", "down", "up"), "the first round is the order given"
    assert len({one[0] for one in rounds}) > 2, "the steps take turns at being first"


def test_no_step_always_follows_the_same_one() -> None:
    rounds = interleaved(["raw", "chain", "down", "up"], rounds=2)
    before = {one[one.index("up") - 1] for one in rounds}
    assert before == {"down", "raw"}, "up ran once after down and once after raw"


def test_no_steps_are_no_work() -> None:
    assert interleaved([], rounds=3) == ((), (), ())
