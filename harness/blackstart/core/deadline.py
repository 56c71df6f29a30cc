"""Budgets are declared once, scaled by one factor and measured on a monotonic clock that is handed in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SHORTEST_PAUSE_S = 0.004
_LONGEST_PAUSE_S = 0.25
_GROWTH = 1.5
_LOOKS_PER_BUDGET = 40


def seconds(name: str, value: float) -> float:
    """The value as seconds above zero and finite; anything else is a `ValueError` that names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}={value!r}: not a number of seconds; try: {name}=2.5")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{name}={value!r}: seconds must be above 0 and finite; try: {name}=2.5")
    return float(value)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a caller declared (`declared_s`) and what it is worth on this machine (`total_s`)."""

    declared_s: float
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a budget that could not be waited for."""
        seconds("budget", self.declared_s)
        seconds("time factor", self.factor)

    @property
    def total_s(self) -> float:
        """Declared seconds times the factor."""
        return self.declared_s * self.factor

    def used_percent(self, elapsed_s: float) -> int:
        """How much of the budget a wait took, so that a creeping wait is seen long before it fails."""
        return round(100 * elapsed_s / self.total_s)

    def __str__(self) -> str:
        """`5 s`, or with a factor `10 s (5 s declared, time factor 2)`."""
        if self.factor == 1.0:
            return f"{self.total_s:.4g} s"
        return f"{self.total_s:.4g} s ({self.declared_s:.4g} s declared, time factor {self.factor:g})"


@dataclass(kw_only=True)
class Pace:
    """Pauses between looks: short at first, growing, never so long that a budget is looked at too rarely."""

    budget_s: float
    every_s: float | None = None
    _pause_s: float = field(default=_SHORTEST_PAUSE_S, init=False)

    def __post_init__(self) -> None:
        """A fixed interval that is not shorter than the budget would look once and prove nothing."""
        seconds("budget", self.budget_s)
        if self.every_s is not None and seconds("every", self.every_s) >= self.budget_s:
            raise ValueError(
                f"every={self.every_s!r}: looks once in a budget of {self.budget_s:g} s;"
                f" try: every={self.budget_s / _LOOKS_PER_BUDGET:g} or leave it out"
            )

    def next_s(self, *, remaining_s: float) -> float:
        """The pause before the next look, clipped to what is left."""
        if self.every_s is not None:
            return max(0.0, min(self.every_s, remaining_s))
        pause_s = self._pause_s
        ceiling_s = max(_SHORTEST_PAUSE_S, min(_LONGEST_PAUSE_S, self.budget_s / _LOOKS_PER_BUDGET))
        self._pause_s = min(ceiling_s, pause_s * _GROWTH)
        return max(0.0, min(pause_s, ceiling_s, remaining_s))


@dataclass(frozen=True, kw_only=True)
class Looks:
    """Look, judge, pause, again: for waits outside a spec, which leave no entry in the journal.

    ```
    for turn in Looks(until=deadline, every_s=0.01, clock=time.monotonic, sleep=time.sleep):
        if it_is_there():
            return
        if turn.over:
            raise TooLate(...)
    ```
    The first look is at once. The loop never ends by itself: the caller checks `over`.
    """

    until: float
    every_s: float
    clock: Callable[[], float]
    sleep: Callable[[float], object]

    @property
    def over(self) -> bool:
        """Whether the deadline has come, at this moment: what a look itself took counts."""
        return self.clock() >= self.until

    def __iter__(self) -> Iterator[Looks]:
        """Itself, turn by turn, with a pause between two."""
        while True:
            yield self
            self.sleep(self.every_s)
