"""Event streams, line by line."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from inference_fleet.frontend.event_lines import EventLines, error_event

WHOLE = b'data: {"n": 1}\n\ndata: {"n": 2}\n\ndata: [DONE]\n\n'


@given(st.lists(st.integers(0, len(WHOLE)), max_size=12))
def test_however_it_is_cut_nothing_is_lost_and_the_end_is_known(cuts: list[int]) -> None:
    lines = EventLines()
    edges = [0, *sorted(cuts), len(WHOLE)]
    passed = b"".join(lines.feed(WHOLE[a:b]) for a, b in pairwise(edges)) + lines.rest()
    assert passed == WHOLE
    assert lines.done


def test_an_unfinished_line_stays_behind_so_a_break_is_told_in_whole_lines() -> None:
    lines = EventLines()
    assert lines.feed(b'data: {"n": 1}\n\ndata: {"n') == b'data: {"n": 1}\n\n'
    told = b'data: {"n": 1}\n\n' + error_event(b'{"error": 1}')
    assert [line for line in told.split(b"\n") if line] == [b'data: {"n": 1}', b'data: {"error": 1}']
    assert not lines.done


def test_an_end_mark_without_its_newline_counts_and_one_inside_a_text_does_not() -> None:
    lines = EventLines()
    assert lines.feed(b'data: {"text": "data: [DONE]"}\n') != b""
    assert not lines.done
    lines.feed(b"data: [DONE]")
    assert lines.rest() == b"data: [DONE]"
    assert lines.done


def test_a_line_without_end_costs_bounded_memory() -> None:
    lines = EventLines()
    passed = b"".join(lines.feed(b"x" * 10_000) for _ in range(20))
    assert len(passed) + len(lines.rest()) == 200_000
    assert len(passed) >= 200_000 - 74_000
