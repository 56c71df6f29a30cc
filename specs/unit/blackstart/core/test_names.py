"""Folder names: safe, bounded, and no two names share one."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blackstart.core.names import NAME_LIMIT, safe_name

ON_A_BUSY_MACHINE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@pytest.mark.holds("H-65")
@ON_A_BUSY_MACHINE
@given(st.text(max_size=400), st.text(max_size=400))
def test_different_names_never_share_a_folder(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) is (one == other)
    assert SAFE.fullmatch(safe_name(one))
    assert len(safe_name(one)) <= NAME_LIMIT


@ON_A_BUSY_MACHINE
@given(st.text(min_size=NAME_LIMIT + 1, max_size=400))
def test_an_over_long_name_gives_exactly_the_limit_with_its_hash(name: str) -> None:
    assert re.fullmatch(rf".{{{NAME_LIMIT - 11}}}-[0-9a-f]{{10}}", safe_name(name))


def test_a_name_cannot_be_made_to_look_like_another_ones_folder() -> None:
    taken = safe_name("specs/test_a.py::test_b")
    assert safe_name(taken) != taken


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-rf", ".hidden", "a/b", "a\\b", "a\0b", "\u202eabc", "journal", "Ledger.jsonl"]
)
def test_what_would_be_trouble_as_a_folder_is_spelled_otherwise(name: str) -> None:
    assert safe_name(name) != name
    assert SAFE.fullmatch(safe_name(name))


@pytest.mark.parametrize("name", ["frontend-0", "worker-0.1", "drill", "up", "test_a"])
def test_a_plain_name_stays(name: str) -> None:
    assert safe_name(name) == name


def test_a_limit_without_room_for_the_hash_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves no room"):
        safe_name("x", limit=5)
