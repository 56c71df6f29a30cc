"""Which rows a choice of rows brings with it."""

from __future__ import annotations

from bench.tunnel import ROWS, with_direct


def test_a_relayed_transfer_brings_the_direct_one_of_its_round() -> None:
    assert with_direct(("relayed-up",)) == ("up", "relayed-up")


def test_other_relayed_rows_stand_alone() -> None:
    assert with_direct(("relayed-latency", "relayed-streams")) == ("relayed-latency", "relayed-streams")


def test_all_rows_are_all_rows() -> None:
    assert with_direct(ROWS) == ROWS
