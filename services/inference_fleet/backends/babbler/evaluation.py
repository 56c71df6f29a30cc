"""Whether the model has learned anything: its perplexity on passages it never saw, beside the unigram model's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inference_fleet.backends.babbler.model import Model
from inference_fleet.backends.babbler.ngram import unigram
from inference_fleet.backends.babbler.speech import Conditioned

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HELD_OUT_EVERY = 8


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Perplexities (lower is better) over the tokens of the held-out passages."""

    trained_on: int
    tokens: int
    model: float
    unigram: float

    @property
    def ratio(self) -> float:
        """The model's perplexity over the unigram model's; below 1 the model has learned something."""
        return self.model / self.unigram

    @property
    def better(self) -> bool:
        """Whether knowing what came before helped."""
        return self.model < self.unigram

    @property
    def text(self) -> str:
        """The figures, one a line."""
        return (
            f"trained on {self.trained_on} tokens, judged on {self.tokens} held-out tokens\n"
            f"model perplexity {self.model:.1f}\nunigram perplexity {self.unigram:.1f}\nratio {self.ratio:.3f}"
        )


def split(text: str) -> tuple[str, list[str]]:
    """The text to train on, and the passages held out: every eighth one."""
    passages = text.strip().split("\n\n")
    held_out = passages[HELD_OUT_EVERY - 1 :: HELD_OUT_EVERY]
    kept = [passage for place, passage in enumerate(passages, start=1) if place % HELD_OUT_EVERY]
    return "\n\n".join(kept) + "\n\n", held_out


def evaluate(text: str) -> Evaluation:
    """Train on most of a text and judge on the rest, on the same tokens for both models."""
    kept, held_out = split(text)
    model = Model.train(kept)
    flat = unigram(model.counts)
    passages = [model.vocabulary.encode(passage) for passage in held_out]
    count = sum(len(passage) for passage in passages)
    surprise = math.fsum(-term for passage in passages for term in surprises(model, [], passage))
    flat_surprise = math.fsum(-math.log(flat[number]) for passage in passages for number in passage)
    return Evaluation(
        trained_on=sum(model.counts.unigrams.values()),
        tokens=count,
        model=math.exp(surprise / count),
        unigram=math.exp(flat_surprise / count),
    )


def surprises(model: Model, prompt: Sequence[int], continuation: Sequence[int]) -> Iterator[float]:
    """The logarithm of each token's probability in `continuation`, read after `prompt`."""
    state = Conditioned(model, prompt)
    for number in continuation:
        yield math.log(state.distribution()[number])
        state.hear(number)
