"""Events survive being written and read, bounded and in one order, whatever was put into them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blackstart.core.journal import (
    LINE_LIMIT,
    VERSION,
    Event,
    JournalError,
    Kind,
    clip,
    decode,
    encode,
    merge,
)

ON_A_BUSY_MACHINE = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=9), children, max_size=3)
    ),
    max_leaves=6,
)


def event(*, seq: int = 1, boot_ns: int = 0, data: dict[str, Any] | None = None) -> Event:
    return Event(seq=seq, boot_ns=boot_ns, wall=0.0, kind=Kind.MARK, data=data or {})


@ON_A_BUSY_MACHINE
@given(st.dictionaries(st.text(), json_values, max_size=4), st.text(), st.integers(1, 99))
def test_an_event_reads_back_as_it_was_written(data: dict[str, Any], node: str, incarnation: int) -> None:
    clipped = clip(data)
    written = Event(
        seq=3,
        boot_ns=7,
        wall=1.5,
        kind=Kind.SPAWN,
        spec="s",
        node=clip(node),
        incarnation=incarnation,
        data=clipped,
    )
    assert decode(encode(written)) == written


def test_what_is_not_known_of_an_event_is_left_out_of_its_line() -> None:
    assert encode(event()) == b'{"v":1,"seq":1,"boot_ns":0,"wall":0.0,"kind":"mark","data":{}}\n'


@pytest.mark.parametrize(
    "data",
    [
        {"text": "x" * 10 * LINE_LIMIT},
        {"list": ["x" * 1000] * 10_000},
        {str(number): "y" * 9000 for number in range(200)},
        {"x" * LINE_LIMIT: {"y" * LINE_LIMIT: 1}},
    ],
    ids=["long-text", "long-list", "many-fields", "long-names"],
)
def test_no_line_is_longer_than_a_reader_takes(data: dict[str, Any]) -> None:
    line = encode(event(data=data))
    assert len(line) <= LINE_LIMIT
    assert decode(line).kind is Kind.MARK


def test_what_is_cut_says_how_much() -> None:
    assert clip("x" * 10, text_limit=4) == "xxxx ... 6 more"
    assert clip(list(range(300)))[-1] == "... 44 more"
    assert clip({number: number for number in range(300)})["..."] == "44 more"


def test_deep_nesting_and_numbers_that_json_has_not_become_text() -> None:
    nested: Any = "end"
    for _ in range(50):
        nested = [nested]
    assert decode(encode(event(data={"deep": nested, "big": 2**80, "nan": float("nan")}))).data["big"] == str(
        2**80
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"", "not an event"),
        (b"{", "not an event"),
        (b"[" * 10_000, "not an event"),
        (b'{"v":1,"seq":1,"boot_ns":0,"wall":0,"kind":"dance","data":{}}', "not an event"),
        (b'{"v":1,"seq":0,"boot_ns":0,"wall":0,"kind":"mark","data":{}}', "a sequence counts from 1"),
        (b'{"v":1,"seq":"1","boot_ns":0,"wall":0,"kind":"mark","data":{}}', "not an event"),
        (b" " * (LINE_LIMIT + 1), "longer than"),
    ],
)
def test_a_line_that_is_no_event_is_named(line: bytes, named: str) -> None:
    with pytest.raises(JournalError, match=named):
        decode(line)


def test_a_newer_schema_is_refused_by_its_version_even_with_fields_this_release_does_not_know() -> None:
    line = b'{"v":%d,"seq":1,"boot_ns":0,"wall":0,"kind":"teleport"}' % (VERSION + 1)
    with pytest.raises(JournalError, match=f"schema version {VERSION + 1}"):
        decode(line)


@ON_A_BUSY_MACHINE
@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.integers(0, 5))))
def test_writers_merge_by_the_boot_clock_and_ties_are_stable(facts: list[tuple[str, int, int]]) -> None:
    pairs = [(writer, event(seq=seq, boot_ns=boot_ns)) for writer, seq, boot_ns in facts]
    merged = merge(pairs)
    assert merge(reversed(pairs)) == merged
    assert [one.boot_ns for one in merged] == sorted(boot_ns for _, _, boot_ns in facts)
