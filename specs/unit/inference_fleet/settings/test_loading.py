"""The collector is off for the imports of a start, and on again whatever became of them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from inference_fleet.settings.loading import kept_for_life

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _nothing_stays_frozen() -> Iterator[None]:
    gc.collect()
    yield
    gc.enable()
    gc.unfreeze()


def test_what_is_loaded_at_a_start_is_never_looked_at_by_the_collector() -> None:
    gc.unfreeze()
    with kept_for_life():
        assert not gc.isenabled(), "the collector looks at what is just being loaded"
        loaded: list[object] = [{} for _ in range(10)]
    assert gc.get_freeze_count() > len(loaded), "the collector looks at what was loaded at each turn"
    assert gc.isenabled()


def test_a_start_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(ZeroDivisionError), kept_for_life():
        raise ZeroDivisionError
    assert gc.isenabled(), "the collector stayed off"
