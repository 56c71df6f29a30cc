"""The model has learned something, and its prompt is one of the things it knows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from inference_fleet.backends.babbler.__main__ import main
from inference_fleet.backends.babbler.evaluation import evaluate, split, surprises
from inference_fleet.backends.babbler.model import Model, corpus

if TYPE_CHECKING:
    import pytest


def test_held_out_perplexity_is_below_the_unigram_models() -> None:
    result = evaluate(corpus())

    assert result.better
    assert 1 < result.model < result.unigram / 2
    assert result.tokens > 1000


def test_the_held_out_passages_are_not_trained_on() -> None:
    kept, held_out = split(corpus())

    assert held_out
    assert not any(passage in kept for passage in held_out)
    assert len(kept) + sum(map(len, held_out)) > 0.99 * len(corpus())


def test_evaluate_prints_both_perplexities_and_their_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate"]) == 0

    told = capsys.readouterr().out
    assert "model perplexity" in told
    assert "unigram perplexity" in told
    assert "ratio 0." in told


def test_a_text_without_structure_is_reported_as_not_better() -> None:
    # every pair of letters occurs once: nothing that came before tells what comes next
    letters = "abcdefghijklmnop"
    pairs = "\n\n".join(a + b for a in letters for b in letters)

    result = evaluate(pairs)

    assert not result.better or result.ratio > 0.5


def test_a_held_out_continuation_is_likelier_after_its_own_beginning_than_after_anothers() -> None:
    kept, held_out = split(corpus())
    model = Model.train(kept)
    halves = []
    for passage in held_out:
        numbers = model.vocabulary.encode(passage)
        halves.append((numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]))
    others = halves[1:] + halves[:1]

    own = math.fsum(x for beginning, end in halves for x in surprises(model, beginning, end))
    strange = math.fsum(
        x
        for (_, end), (beginning, _) in zip(halves, others, strict=True)
        for x in surprises(model, beginning, end)
    )

    assert own > strange
