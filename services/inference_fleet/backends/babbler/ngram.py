"""How likely each next token is: an n-gram model with interpolated, modified Kneser-Ney smoothing.

A context that was seen gives part of its mass to what followed it, each count less a discount; the mass the
discounts set free goes to the context without its first token, and in the end to every token alike. Shorter
contexts count how many *different* tokens stood before, not how often: a word that follows only one other is
unlikely elsewhere, however frequent it is.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Self

import msgspec

from inference_fleet.backends.babbler.vocabulary import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Context = tuple[int, ...]
ORDER = 5


class Counts(msgspec.Struct, frozen=True):
    """What training leaves: for each context length, what followed each context how often."""

    size: int
    unigrams: dict[int, int]
    levels: list[dict[Context, dict[int, int]]]

    @classmethod
    def of(cls, numbers: Sequence[int], *, size: int, order: int = ORDER) -> Self:
        """Count a text of `size` different tokens; `order` tokens stand in one n-gram."""
        padded = (*([UNKNOWN] * (order - 1)), *numbers)
        grams: Iterable[Context] = zip(*(padded[start:] for start in range(order)), strict=False)
        level = Counter(grams)
        levels = [_by_context(level)]
        for _ in range(order - 1):
            level = Counter(gram[1:] for gram in level)
            levels.append(_by_context(level))
        return cls(size=size, unigrams=dict(Counter(numbers)), levels=levels[::-1])


class Ngram:
    """Probabilities from counts; what the shortest context says is worked out once."""

    def __init__(self, counts: Counts) -> None:
        self._levels = counts.levels
        self._discounts = [_discounts(level) for level in counts.levels]
        self.order = len(counts.levels)
        self._base = self._spread([1.0 / counts.size] * counts.size, 0, ())

    def distribution(self, context: Sequence[int]) -> list[float]:
        """The probability of each token after `context`, of which the last `order - 1` tokens count."""
        probabilities = self._base
        for length in range(1, min(self.order - 1, len(context)) + 1):
            tail = tuple(context[-length:])
            if tail not in self._levels[length]:
                break  # a longer context was seen only where this one was
            probabilities = self._spread(probabilities, length, tail)
        return probabilities

    def _spread(self, shorter: list[float], length: int, context: Context) -> list[float]:
        followers = self._levels[length][context]
        discounts = self._discounts[length]
        total = sum(followers.values())
        freed = math.fsum(discounts[min(count, 3)] for count in followers.values()) / total
        longer = [probability * freed for probability in shorter]
        for number, count in followers.items():
            longer[number] += (count - discounts[min(count, 3)]) / total
        return longer


def unigram(counts: Counts) -> list[float]:
    """The model that knows nothing of what came before: what the n-gram model has to beat."""
    smallest = 1.0 / counts.size
    total = sum(counts.unigrams.values()) + 1
    return [(counts.unigrams.get(number, 0) + smallest) / total for number in range(counts.size)]


def _by_context(grams: Counter[Context]) -> dict[Context, dict[int, int]]:
    level: dict[Context, dict[int, int]] = {}
    for gram, count in grams.items():
        level.setdefault(gram[:-1], {})[gram[-1]] = count
    return level


def _discounts(level: dict[Context, dict[int, int]]) -> tuple[float, float, float, float]:
    """The discount of a count of 0, 1, 2, and 3 or more (Chen and Goodman's estimates, kept between 0 and the count)."""
    seen = Counter(count for followers in level.values() for count in followers.values())
    once, twice, thrice, fourfold = (seen.get(count, 0) or 1 for count in (1, 2, 3, 4))
    ratio = once / (once + 2 * twice)
    return (
        0.0,
        min(0.95, max(0.1, 1 - 2 * ratio * twice / once)),
        min(1.9, max(0.1, 2 - 3 * ratio * thrice / twice)),
        min(2.8, max(0.1, 3 - 4 * ratio * fourfold / thrice)),
    )
