"""The account of a wait, fed by hand."""

from __future__ import annotations

from blackstart.core.deadline import Budget
from blackstart.core.observation import UNSEEN, Observation, Probe


def account() -> Observation:
    return Observation(
        kind="eventually", what="presence(worker-0)", awaited="== 'gone'", budget=Budget(declared_s=10)
    )


def test_looks_errors_and_matches_are_counted_apart() -> None:
    seen = account()
    seen.saw("connected", matched=False, at_s=0)
    seen.failed(ConnectionError("refused"), at_s=1)
    seen.saw("gone", matched=True, at_s=2)

    assert (seen.looks, seen.errors, seen.matches, seen.seen) == (3, 1, 1, 2)
    assert (seen.first, seen.last) == ("connected", "gone")
    assert seen.last_matched


def test_an_error_after_a_match_is_no_match() -> None:
    seen = account()
    seen.saw("gone", matched=True, at_s=0)
    seen.failed(ConnectionError("refused"), at_s=1)
    assert not seen.last_matched


def test_nothing_seen_is_told_apart_from_none_seen() -> None:
    seen = account()
    assert seen.data()["last"] is None
    assert "last       nothing seen" in seen.text("not seen")
    seen.saw(None, matched=False, at_s=0)
    assert "last       None" in seen.text("not seen")


def test_equal_neighbours_fold_into_a_trend_that_stays_short() -> None:
    seen = account()
    for look in range(100):
        seen.saw("connected" if look < 60 else "gone", matched=False, at_s=look / 10)
    assert seen.trend() == "'connected' (60 looks from 0 s) -> 'gone' (40 looks from 6 s)"

    for look in range(100):
        seen.saw(look, matched=False, at_s=10 + look)
    assert seen.trend().startswith("(94 earlier changes) -> 92 (1 look from 102 s)")


def test_the_widest_gap_counts_up_to_the_end() -> None:
    seen = account()
    for at_s in (0, 1, 4, 5):
        seen.saw("x", matched=False, at_s=at_s)
    assert seen.widest_gap_s == 3
    seen.finish(at_s=10)
    assert seen.widest_gap_s == 5


def test_the_text_has_all_a_reader_needs_next() -> None:
    seen = account()
    seen.saw("connected", matched=False, at_s=0)
    seen.failed(ConnectionError("refused"), at_s=9.5)
    seen.finish(at_s=10)

    text = seen.text("not seen within 10 s", processes="frontend-0 dead (pid 7)")
    for part in (
        "presence(worker-0)",
        "== 'gone'",
        "2 times, 1 errors",
        "'connected'",
        "ConnectionError: refused (at 9.5 s)",
        "used 100 %",
        "frontend-0 dead",
    ):
        assert part in text


def test_a_probe_that_answers_again_forgets_the_error() -> None:
    answers = [ConnectionError("refused"), "healthy"]

    def ask() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    probe = Probe(ask, name="roster")
    assert probe.sample() is UNSEEN
    assert "then ConnectionError: refused" in probe.report()
    assert probe.sample() == "healthy"
    assert probe.report() == "roster: last seen 'healthy', no error since"
