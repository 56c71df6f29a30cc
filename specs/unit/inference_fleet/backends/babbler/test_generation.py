"""One process runs a bounded number of generations."""

from __future__ import annotations

import contextlib

import pytest

from inference_fleet.backends.babbler.generation import MAX_ACTIVE, Stats
from inference_fleet.backends.babbler.wire import BadRequest


def test_one_generation_too_many_is_told_to_come_back_and_is_not_counted() -> None:
    stats = Stats()
    with contextlib.ExitStack() as running:
        for _ in range(MAX_ACTIVE):
            running.enter_context(stats.generation())
        with pytest.raises(BadRequest) as caught, stats.generation():
            pass

        assert caught.value.status == 429
        assert stats.active == stats.started == MAX_ACTIVE
    with stats.generation():
        assert stats.active == 1


def test_a_generation_left_by_an_exception_is_not_finished() -> None:
    stats = Stats()
    with pytest.raises(KeyError), stats.generation():
        raise KeyError

    assert (stats.active, stats.started, stats.finished) == (0, 1, 0)
