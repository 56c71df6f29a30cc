"""Leaks are found by comparing what is there before and after, whatever it is."""

from __future__ import annotations

from blackstart.core.sentinel import Baseline, Sentinel


def test_what_appears_and_stays_is_a_leak_named_by_its_sentinel() -> None:
    there = {1: "one"}
    baseline = Baseline([Sentinel("descriptors", lambda: there)])
    baseline.take()
    there[2] = "2 -> /tmp/forgotten"
    del there[1]
    assert [str(leak) for leak in baseline.leaks()] == ["descriptors: 2 -> /tmp/forgotten"]


def test_what_a_wider_scope_opens_meanwhile_is_adopted_and_the_rest_is_not() -> None:
    there = {1: "one"}
    baseline = Baseline([Sentinel("descriptors", lambda: there)])
    baseline.take()
    there[2] = "the spec's own"
    before = baseline.state()
    there[3] = "the session's"
    baseline.adopt(before)
    assert [leak.text for leak in baseline.leaks()] == ["the spec's own"]


def test_a_sentinel_may_bring_its_own_comparison() -> None:
    tasks = {"frontend-0": 12}
    baseline = Baseline(
        [
            Sentinel(
                "tasks",
                lambda: tasks,
                lambda before, after: [
                    f"{node} runs {after[node]} tasks, {before[node]} before"
                    for node in before
                    if after[node] > before[node]
                ],
            )
        ]
    )
    baseline.take()
    tasks["frontend-0"] = 15
    assert [str(leak) for leak in baseline.leaks()] == ["tasks: frontend-0 runs 15 tasks, 12 before"]
