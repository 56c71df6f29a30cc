"""The tally, fed by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from blackstart.core.tally import InventoryError, Row, SpecResult, read_inventory, take_tally

ROWS = {
    "B-1": Row("B-1", "one"),
    "B-2": Row("B-2", "two", later="tunnel"),
    "B-3": Row("B-3", "three", never="not ours"),
}
NEVER_OURS = {88, 96, 97, 98, 102, 123, 129, 134, 136, 212, 213, 215, 244, 245, 254, 255, 257}


def passed(*ids: str) -> SpecResult:
    return SpecResult("spec", "passed", ids)


def test_a_row_that_a_passed_spec_names_is_held_and_the_rest_is_what_it_says() -> None:
    tally = take_tally(ROWS, [passed("B-1")], required=())
    assert tally.held == ("B-1",)
    assert tally.later == {"tunnel": ("B-2",)}
    assert tally.never == ("B-3",)
    assert tally.whole
    assert tally.lines() == ["1 held, 0 excused, 1 later (tunnel 1), 1 never, 0 holes"]


def test_a_row_nobody_holds_is_a_hole() -> None:
    tally = take_tally(ROWS, [], required=())
    assert [row.id for row in tally.holes] == ["B-1"], "a row that nobody holds is a hole"
    assert not tally.whole
    assert "HOLE B-1: no spec that passed holds: one" in tally.lines()


def test_a_spec_that_failed_holds_nothing() -> None:
    tally = take_tally(ROWS, [SpecResult("spec", "failed", ("B-1",))], required=())
    assert [row.id for row in tally.holes] == ["B-1"]


def test_a_skip_excuses_only_for_a_capability_nobody_required() -> None:
    skipped = SpecResult("spec", "skipped", ("B-1",), ("container",))
    assert take_tally(ROWS, [skipped], required=()).excused == {"B-1": "spec needs container"}
    assert not take_tally(ROWS, [skipped], required=("container",)).whole
    assert take_tally(ROWS, [skipped], required=("strace",)).whole


def test_a_skip_for_any_other_reason_excuses_nothing() -> None:
    assert not take_tally(ROWS, [SpecResult("spec", "skipped", ("B-1",))], required=()).whole


def test_a_failure_beside_a_skip_is_not_excused() -> None:
    results = [
        SpecResult("first", "skipped", ("B-1",), ("container",)),
        SpecResult("second", "failed", ("B-1",)),
    ]
    assert not take_tally(ROWS, results, required=()).whole


def test_an_id_that_is_not_in_the_inventory_is_told_with_its_spec() -> None:
    tally = take_tally(ROWS, [passed("B-1", "B-99")], required=())
    assert tally.unknown == {"B-99": "spec"}
    assert not tally.whole


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("B-1 = 3", "B-1=3: not a row"),
        ("B-1 = { title = '' }", "its title is empty"),
        ("B-1 = { title = 'x', when = 'now' }", "not a row"),
        ("B-1 = { title = 'x', later = 'someday' }", "later=someday: no such title; try: tunnel"),
        ("B-1 = { title = 'x', later = 'tunnel', never = 'no' }", "both later and never"),
        ("B-1 =", "not TOML"),
    ],
)
def test_an_inventory_that_cannot_be_meant_names_the_row(text: str, told: str) -> None:
    with pytest.raises(InventoryError, match=told):
        read_inventory(text)


def test_the_inventory_of_this_tree_has_every_row_once_and_excludes_only_what_is_not_ours() -> None:
    rows = read_inventory((Path(__file__).parents[3] / "inventory.toml").read_text(encoding="utf-8"))
    expected = {
        f"{kind}-{number}"
        for kind, last in (("B", 262), ("H", 104), ("T", 81))
        for number in range(1, last + 1)
    }
    assert set(rows) == expected
    assert {row.id for row in rows.values() if row.never} == {f"B-{number}" for number in NEVER_OURS}
