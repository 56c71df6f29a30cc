"""What is compared, and whose floors are held."""

from __future__ import annotations

import pytest

from bench.stands import CARRIERS, WIRES, Stand, chosen, judged, stands_of
from blackstart.core.commands import BadInput


def test_stands_are_every_combination() -> None:
    names = [stand.name for stand in stands_of(carriers=CARRIERS, wires=WIRES)]
    assert names == ["takeover/plain", "takeover/tls", "asgi/plain", "asgi/tls"]


def test_floors_are_held_on_what_production_runs_by_default() -> None:
    assert judged(stands_of(carriers=("asgi", "takeover"), wires=WIRES)) == Stand(
        carrier="takeover", wire="plain"
    )


def test_floors_are_held_on_the_fallback_where_it_alone_was_asked_for() -> None:
    assert judged(stands_of(carriers=("asgi",), wires=WIRES)) == Stand(carrier="asgi", wire="plain")


def test_no_floor_is_held_over_tls() -> None:
    assert judged(stands_of(carriers=CARRIERS, wires=("tls",))) is None


def test_words_of_an_option_are_known_ones() -> None:
    assert chosen("--wire", "all", WIRES) == WIRES
    assert chosen("--wire", "tls", WIRES) == ("tls",)
    with pytest.raises(BadInput, match="--carrier=pigeon: unknown; try: some of takeover,asgi"):
        chosen("--carrier", "asgi,pigeon", CARRIERS)
    with pytest.raises(BadInput, match="names one twice"):
        chosen("--carrier", "asgi,asgi", CARRIERS)
