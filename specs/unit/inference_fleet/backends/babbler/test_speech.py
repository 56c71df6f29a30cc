"""What is said follows from prompt, seed and manner, and stops where it was told to."""

from __future__ import annotations

import math
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inference_fleet.backends.babbler.speech import Conditioned, Manner, StopWatch, choose, speak

from .served import MODEL


def said(
    prompt: str, *, tokens: int = 40, seed: int = 1, temperature: float = 1.0, top_p: float = 1.0
) -> str:
    numbers = MODEL.vocabulary.encode(prompt)
    manner = Manner(seed=seed, temperature=temperature, top_p=top_p)
    return MODEL.vocabulary.decode(list(islice(speak(MODEL, numbers, manner), tokens)))


def test_the_same_seed_says_the_same_and_another_seed_does_not() -> None:
    assert said("The river", seed=7) == said("The river", seed=7)
    assert said("The river", seed=7) != said("The river", seed=8)


def test_temperature_zero_takes_the_likeliest_token_whatever_the_seed() -> None:
    assert said("The river", seed=7, temperature=0) == said("The river", seed=8, temperature=0)
    state = Conditioned(MODEL, MODEL.vocabulary.encode("The river"))
    distribution = state.distribution()
    assert choose(distribution, Manner(seed=1, temperature=0), 0.0) == distribution.index(max(distribution))


def test_the_prompt_bends_the_next_token_by_its_end_and_by_its_subject() -> None:
    def after(prompt: str) -> list[float]:
        return Conditioned(MODEL, MODEL.vocabulary.encode(prompt)).distribution()

    bees = MODEL.vocabulary.encode(" bees")[0]
    # same last tokens, another subject
    assert after("Tell me about the bees, and then")[bees] > after("Tell me about the lake, and then")[bees]
    # same subject, another end
    assert after("The bees are in the") != after("The bees are what")
    assert math.fsum(after("Tell me about the bees, and then")) == pytest.approx(1)


def test_a_lower_temperature_says_likelier_things() -> None:
    distribution = Conditioned(MODEL, MODEL.vocabulary.encode("in the")).distribution()

    def likelihood(temperature: float) -> float:
        manner = Manner(seed=1, temperature=temperature)
        return math.fsum(distribution[choose(distribution, manner, point / 64)] for point in range(64))

    assert likelihood(0.3) > likelihood(1.0) > likelihood(1.9)


def test_a_small_top_p_leaves_only_the_likeliest_token() -> None:
    distribution = Conditioned(MODEL, MODEL.vocabulary.encode("in the")).distribution()
    best = distribution.index(max(distribution))

    narrow = {choose(distribution, Manner(seed=1, top_p=0.01), point / 16) for point in range(16)}
    wide = {choose(distribution, Manner(seed=1), point / 16) for point in range(16)}

    assert narrow == {best}
    assert len(wide) > 1


@example(pieces=["xa", "b", "x"], stops=["abb", "ab"])
@given(
    st.lists(st.text(alphabet="abx", max_size=5), max_size=8),
    st.lists(st.text(alphabet="abx", min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_a_stop_sequence_cuts_the_text_wherever_the_pieces_split(pieces: list[str], stops: list[str]) -> None:
    watch = StopWatch(stops)
    told = "".join(watch.feed(piece) for piece in pieces) + watch.rest()
    whole = "".join(pieces)

    assert whole.startswith(told)
    assert not any(stop in told for stop in stops)
    if watch.stopped:
        assert any(whole[len(told) :].startswith(stop) for stop in stops)
    else:
        assert told == whole
