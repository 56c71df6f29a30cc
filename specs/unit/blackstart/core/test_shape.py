"""A delay or a rate that no link can have is refused where it is written, by name and with what is allowed."""

from __future__ import annotations

from typing import Any

import pytest

from blackstart.core.shape import CLEAR, MOST_IN_FLIGHT, UNRATED_IN_FLIGHT, BadShape, Shape


def test_a_link_is_told_in_seconds_and_bytes_or_as_networks_are_sold() -> None:
    sold = Shape.mbit(200, delay_s=0.025)
    assert sold == Shape(delay_s=0.025, bytes_per_s=25_000_000)
    assert str(sold) == "25 ms, 25000000 B/s"
    assert Shape(bytes_per_s=25e6) == Shape(bytes_per_s=25_000_000)  # type: ignore[arg-type]  # whole all the same
    assert (str(CLEAR), CLEAR.is_clear, sold.is_clear) == ("clear", True, False)


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"delay_s": -0.001}, "delay_s=-0.001: a delay is 0 to 60 seconds"),
        ({"delay_s": 60.1}, "delay_s=60.1: a delay is 0 to 60 seconds"),
        ({"delay_s": float("nan")}, "delay_s=nan: is no finite number"),
        ({"delay_s": float("inf")}, "delay_s=inf: is no finite number"),
        ({"delay_s": "1"}, "delay_s='1': is no finite number"),
        ({"delay_s": True}, "delay_s=True: is no finite number"),
        ({"bytes_per_s": 0}, "bytes_per_s=0: a rate is 1 to"),
        ({"bytes_per_s": -5}, "bytes_per_s=-5: a rate is 1 to"),
        ({"bytes_per_s": 0.5}, "bytes_per_s=0.5: a rate is 1 to"),
        ({"bytes_per_s": 1.5}, "bytes_per_s=1.5: a rate is 1 to .* whole bytes"),
        ({"bytes_per_s": 10**13}, "bytes_per_s=10000000000000: a rate is 1 to"),
        ({"bytes_per_s": float("inf")}, "bytes_per_s=inf: is no finite number"),
        ({"bytes_per_s": False}, "bytes_per_s=False: is no finite number"),
    ],
    ids=str,
)
def test_what_no_link_can_be_is_refused_by_name(given: dict[str, Any], names: str) -> None:
    with pytest.raises(BadShape, match=f"^{names}.*; try: "):
        Shape(**given)


@pytest.mark.parametrize("megabit", [0, -1, float("nan"), 1e8])
def test_a_bad_rate_in_megabit_is_told_in_megabit(megabit: float) -> None:
    with pytest.raises(BadShape, match=r"^mbit_per_s="):
        Shape.mbit(megabit)


def test_a_product_that_would_fill_the_memory_is_refused_with_the_rate_that_would_not() -> None:
    with pytest.raises(BadShape, match=r"bytes would be under way at once.*try: bytes_per_s=26738688$"):
        Shape(delay_s=10, bytes_per_s=10**9)
    assert Shape(delay_s=10, bytes_per_s=26_738_688).in_flight_bytes <= MOST_IN_FLIGHT


def test_what_may_be_under_way_is_the_product_and_a_queue_of_twenty_milliseconds() -> None:
    sold = Shape.mbit(200, delay_s=0.025)
    assert (sold.queue_bytes, sold.in_flight_bytes) == (500_000, 625_000 + 500_000)
    assert Shape(bytes_per_s=1000).queue_bytes == 16 * 1024, "no less than a small read"
    assert Shape(bytes_per_s=10**9).queue_bytes == 1024 * 1024, "no more than a large one"
    assert Shape(delay_s=1).in_flight_bytes == UNRATED_IN_FLIGHT
    assert CLEAR.in_flight_bytes == 0


def test_a_shape_survives_the_control_channel_and_an_unknown_field_does_not() -> None:
    shape = Shape(delay_s=0.5, bytes_per_s=7)
    assert Shape.from_wire(shape.to_wire()) == shape
    with pytest.raises(BadShape, match="jitter_s: is no field of a shape; try: one of bytes_per_s, delay_s"):
        Shape.from_wire({"jitter_s": 1})
