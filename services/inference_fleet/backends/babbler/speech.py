"""What the model says to a prompt: the distribution bent towards the prompt's own words, one seeded draw a token."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from inference_fleet.backends.babbler.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from inference_fleet.backends.babbler.model import Model

TOPIC_WEIGHT = 2.0


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How to speak. `temperature` 0 takes the likeliest token each time and needs no seed."""

    seed: int
    temperature: float = 1.0
    top_p: float = 1.0


class Conditioned:
    """The model after one prompt.

    The prompt's last tokens are the first context, and each of its telling words is `1 + TOPIC_WEIGHT` times
    as likely, relative to the others, as the model alone would have it, wherever the grammar has room for it.
    """

    def __init__(self, model: Model, prompt: Sequence[int]) -> None:
        self._ngram = model.ngram
        self._topic = sorted(set(prompt) - model.common - {UNKNOWN})
        self._reach = model.ngram.order - 1
        self._context = list(prompt[-self._reach :])

    def distribution(self) -> list[float]:
        """The probability of each next token; sums to one."""
        probabilities = self._ngram.distribution(self._context)
        if not self._topic:
            return probabilities
        lifted = math.fsum(probabilities[number] for number in self._topic) * TOPIC_WEIGHT
        scale = 1.0 / (1.0 + lifted)
        bent = [probability * scale for probability in probabilities]
        for number in self._topic:
            bent[number] *= 1.0 + TOPIC_WEIGHT
        return bent

    def hear(self, number: int) -> None:
        """Go one token on."""
        self._context.append(number)
        del self._context[: -self._reach]


def speak(model: Model, prompt: Sequence[int], manner: Manner) -> Iterator[int]:
    """Tokens without end, the same ones for the same model, prompt and manner."""
    state = Conditioned(model, prompt)
    draw = random.Random(manner.seed).random  # noqa: S311 - text that repeats by its seed is the point
    while True:
        number = choose(state.distribution(), manner, draw() if manner.temperature > 0 else 0.0)
        state.hear(number)
        yield number


def choose(probabilities: list[float], manner: Manner, point: float) -> int:
    """The token at `point` (0 to 1) of the distribution; the likeliest one when the temperature is 0."""
    weights = probabilities.copy()
    weights[UNKNOWN] = 0.0
    if manner.temperature == 0:
        return weights.index(max(weights))
    if manner.temperature != 1:
        weights = _heated(weights, manner.temperature)
    if manner.top_p < 1:
        weights = _nucleus(weights, manner.top_p)
    # left to right in every Python, where sum() changed its ways with 3.12: nodes may differ in theirs
    heights = list(accumulate(weights))
    goal = point * heights[-1]
    low, high = 0, len(heights) - 1
    while low < high:
        middle = (low + high) // 2
        if heights[middle] > goal:
            high = middle
        else:
            low = middle + 1
    return low


def _heated(weights: list[float], temperature: float) -> list[float]:
    power = 1.0 / temperature
    top = max(weights)
    return [math.pow(weight / top, power) if weight > 0 else 0.0 for weight in weights]


def _nucleus(weights: list[float], top_p: float) -> list[float]:
    """Only the likeliest tokens that together reach `top_p` of the mass."""
    order = sorted(range(len(weights)), key=lambda number: (-weights[number], number))
    enough = top_p * list(accumulate(weights))[-1]
    kept = [0.0] * len(weights)
    mass = 0.0
    for number in order:
        kept[number] = weights[number]
        mass += weights[number]
        if mass >= enough:
            break
    return kept


class StopWatch:
    """Cuts a growing text before the first of some stop sequences, and holds back what may become one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """What of the text so far may be told; nothing more after a stop was met."""
        if self.stopped:
            return ""
        self._held += text
        ends = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if ends:
            self.stopped = True
            return self._held[: min(ends)]
        keep = max((self._overlap(stop) for stop in self._stops), default=0)
        told, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return told

    def rest(self) -> str:
        """What was held back and became no stop sequence after all."""
        told, self._held = ("" if self.stopped else self._held), ""
        return told

    def _overlap(self, stop: str) -> int:
        longest = min(len(stop) - 1, len(self._held))
        return next((size for size in range(longest, 0, -1) if self._held.endswith(stop[:size])), 0)
