"""What must hold and where we are going: the one table of floors and goals, and the rule that judges by it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Better(Enum):
    """Which way a figure gets better."""

    HIGHER = "at least"
    LOWER = "at most"


@dataclass(frozen=True, kw_only=True)
class Bound:
    """One figure's floor, which `--check` holds, and its goal, which it only shows."""

    figure: str
    text: str
    better: Better
    floor: float
    goal: float
    unit: str = ""

    def holds(self, value: float) -> bool:
        """Whether a value reaches the floor; one that is no number reaches nothing."""
        return value >= self.floor if self.better is Better.HIGHER else value <= self.floor

    def reaches(self, value: float) -> bool:
        """Whether a value reaches the goal."""
        return value >= self.goal if self.better is Better.HIGHER else value <= self.goal


def _higher(figure: str, text: str, floor: float, goal: float, unit: str = "") -> Bound:
    return Bound(figure=figure, text=text, better=Better.HIGHER, floor=floor, goal=goal, unit=unit)


def _lower(figure: str, text: str, floor: float, goal: float, unit: str = "") -> Bound:
    return Bound(figure=figure, text=text, better=Better.LOWER, floor=floor, goal=goal, unit=unit)


BOUNDS: Final = (
    _higher("down/raw", "download through one stream over raw loopback", 0.17, 0.30),
    _higher("up/raw", "upload through one stream over raw loopback", 0.22, 0.34),
    _higher("down/chain", "download through one stream over a two-hop copy chain", 0.28, 0.65),
    _higher("up/chain", "upload through one stream over a two-hop copy chain", 0.40, 0.75),
    _lower("relayed-down/direct", "time of a relayed download over a direct one", 2.2, 1.35),
    _lower("relayed-up/direct", "time of a relayed upload over a direct one", 2.2, 1.35),
    _lower("latency", "worst small request during a bulk download over its idle median", 8, 5),
    _lower("relayed-latency", "the same, both relayed", 8, 4),
    _higher("streams", "new streams with handshake, echo, close", 1500, 4000, "/s"),
    _higher("relayed-streams", "the same, relayed", 1000, 2500, "/s"),
    _lower("stream-memory-frontend", "an idle stream at the frontend", 2, 1, "KB"),
    _lower("stream-memory-worker", "an idle stream at the worker", 2, 1, "KB"),
    _lower("tunnel-memory-frontend", "an idle tunnel at the frontend", 40, 8, "KB"),
    _lower("tunnel-memory-worker", "an idle tunnel at the worker", 40, 8, "KB"),
    _higher("http/raw", "a large answer through /v1 over raw loopback", 0.10, 0.25),
    _lower("http-added", "a small request through /v1, more than one to the backend itself", 3, 0.8, "ms"),
)

BY_FIGURE: Final = {bound.figure: bound for bound in BOUNDS}
OF_ANSWERS: Final = frozenset({"http/raw", "http-added"})
OF_STREAMS: Final = frozenset(BY_FIGURE) - OF_ANSWERS
OF_IDLE_TUNNELS: Final = frozenset({"tunnel-memory-frontend", "tunnel-memory-worker"})
"""Which of them a bench has to come up with when all of its rows were run."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """One figure of one subject against its bound."""

    subject: str
    bound: Bound
    value: float

    @property
    def held(self) -> bool:
        """Whether the floor is reached."""
        return self.bound.holds(self.value)

    def __str__(self) -> str:
        """A line that names the floor."""
        bound = self.bound
        word = "HELD" if self.held else "MISSED"
        return (
            f"{word} {self.subject} {bound.figure}: {self.value:.3g}{bound.unit}, "
            f"floor {bound.better.value} {bound.floor:g}{bound.unit}, goal {bound.goal:g}{bound.unit} ({bound.text})"
        )


def judge(subject: str, medians: Mapping[str, float], *, due: Collection[str] = ()) -> list[Judgement]:
    """Every figure of a subject that has a bound, in the table's order; one that was due and never came is missed."""
    return [
        Judgement(subject=subject, bound=bound, value=medians.get(bound.figure, math.nan))
        for bound in BOUNDS
        if bound.figure in medians or bound.figure in due
    ]
