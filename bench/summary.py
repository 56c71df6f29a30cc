"""What several rounds say together: the middle, how far they lie apart, and a ratio only within one round."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The rounds of one figure."""

    median: float
    low: float
    high: float
    rounds: int

    @property
    def spread(self) -> float:
        """The distance between the best and the worst round, as a share of the median; 0 where that is 0."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summarise(values: Sequence[float]) -> Summary:
    """One round or more; none is an error, since a median of nothing must not read as a figure."""
    if not values:
        raise ValueError("values=[]: no round gave this figure; try: --rounds 1 or more")
    return Summary(median=statistics.median(values), low=min(values), high=max(values), rounds=len(values))


def ratios(values: Sequence[float], controls: Sequence[float]) -> list[float]:
    """Each round's value over the control of the same round; what was taken minutes apart is never divided."""
    if len(values) != len(controls):
        raise ValueError(
            f"{len(values)} rounds over {len(controls)} rounds of the control; "
            "try: run the control once in each round"
        )
    return [value / control for value, control in zip(values, controls, strict=True)]
