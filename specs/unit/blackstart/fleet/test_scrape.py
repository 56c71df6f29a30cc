"""A metric that is not there is an error and never zero."""

from __future__ import annotations

import pytest

from blackstart.fleet.scrape import BackendStats, Scrape

SEEN = Scrape(
    {
        ("blackstart_tasks", frozenset()): 20.0,
        ("blackstart_dials_total", frozenset({("outcome", "opened")})): 3.0,
        ("blackstart_dials_total", frozenset({("outcome", "no-connection")})): 1.0,
    }
)


def test_a_sample_is_found_by_its_name_and_labels() -> None:
    assert SEEN.value("blackstart_tasks") == 20.0
    assert SEEN.value("blackstart_dials_total", outcome="opened") == 3.0


def test_a_renamed_metric_is_an_error_that_names_what_there_is() -> None:
    with pytest.raises(
        LookupError, match=r"metric blackstart_task: is not there; there are blackstart_dials_total, "
    ):
        SEEN.value("blackstart_task")
    with pytest.raises(LookupError):
        SEEN.value("blackstart_dials_total", outcome="opend")


def test_a_total_sums_the_samples_that_carry_the_labels() -> None:
    assert SEEN.total("blackstart_dials_total") == 4.0
    assert SEEN.total("blackstart_dials_total", outcome="opened") == 3.0
    assert SEEN.total("blackstart_dials_total", outcome="stale-owner") == 0.0


def test_a_counter_that_is_missing_from_the_stats_is_an_error() -> None:
    assert BackendStats.of({"active": 1, "started": 2, "finished": 3, "tokens": 4}).tokens == 4
    with pytest.raises(KeyError):
        BackendStats.of({"active": 1, "started": 2, "finished": 3})
