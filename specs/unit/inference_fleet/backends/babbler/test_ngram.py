"""Probabilities are probabilities, and context changes them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_fleet.backends.babbler.ngram import Counts, Ngram, unigram

TEXT = [1, 2, 3, 1, 2, 4, 1, 2, 3, 5, 1, 2, 3]


@given(st.lists(st.integers(1, 7), min_size=1, max_size=60), st.lists(st.integers(0, 7), max_size=6))
def test_every_distribution_sums_to_one_and_leaves_nothing_impossible(
    text: list[int], context: list[int]
) -> None:
    distribution = Ngram(Counts.of(text, size=8)).distribution(context)

    assert math.fsum(distribution) == pytest.approx(1)
    assert min(distribution) > 0


def test_what_followed_a_context_is_likelier_after_it_than_elsewhere() -> None:
    ngram = Ngram(Counts.of(TEXT, size=8))

    assert ngram.distribution([1, 2])[3] > ngram.distribution([5])[3]
    assert ngram.distribution([1, 2])[3] > ngram.distribution([1, 2])[5]


def test_a_token_that_follows_only_one_other_is_unlikely_elsewhere_however_frequent() -> None:
    # 2 always follows 1; 3 follows several: without context 3 is likelier, though 2 is more frequent
    text = [1, 2, 1, 2, 1, 2, 1, 2, 4, 3, 5, 3, 6, 3]
    ngram = Ngram(Counts.of(text, size=8))

    assert text.count(2) > text.count(3)
    assert ngram.distribution([])[3] > ngram.distribution([])[2]


def test_the_unigram_model_knows_frequencies_and_no_context() -> None:
    flat = unigram(Counts.of(TEXT, size=8))

    assert math.fsum(flat) == pytest.approx(1)
    assert flat[2] == max(flat)
