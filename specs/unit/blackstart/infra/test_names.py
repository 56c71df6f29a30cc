"""Database names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blackstart.infra.names import LONGEST, PREFIX, bounded_name, database_name, run_prefix, template_name

RUN = "20261130-081535-64971304"


@pytest.mark.holds("B-201")
def test_an_over_long_name_gives_exactly_fifty_characters() -> None:
    assert len(bounded_name("x" * 51)) == LONGEST == 50
    assert len(bounded_name("specs/unit/test_" + "ü-x" * 300)) == 50
    assert bounded_name("x" * 50) == "x" * 50, "control: a name that fits is left as it is"


@pytest.mark.holds("B-201")
def test_two_over_long_names_that_differ_at_their_end_stay_two() -> None:
    assert bounded_name("x" * 80 + "a") != bounded_name("x" * 80 + "b")


@given(st.text(max_size=400))
def test_any_text_becomes_a_safe_name(text: str) -> None:
    name = bounded_name(text)
    assert 0 < len(name) <= LONGEST
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")


def test_a_runs_databases_begin_with_its_prefix_and_no_two_are_alike() -> None:
    prefix = run_prefix(RUN)
    names = [database_name(RUN, number, owner=owner) for number in (1, 99999) for owner in (1, 4194304)]
    names += [template_name(RUN, "a.b"), template_name(RUN, "a.c")]
    assert prefix == f"{PREFIX}20261130_081535_64971304_"
    assert all(name.startswith(prefix) for name in names)
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= LONGEST
    assert run_prefix(RUN + "x" * 60) != run_prefix(RUN + "x" * 61), "long run ids share a prefix"
