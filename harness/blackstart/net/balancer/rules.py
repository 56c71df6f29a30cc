"""Which request meets which fate, and the account of it: the rules of a balancer and what they did.

Pure: the moment is handed in. Counts are kept for every path, the heads themselves only for the last few.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blackstart.net.balancer.head import RequestHead

LONGEST_RECORD = 2000
MOST_PATHS = 10_000
OTHER_PATHS = "(other paths)"
_LONGEST_PATH = 512


class Action(StrEnum):
    """What a rule does with a request whose path it matches."""

    REFUSE = "refuse"  # the balancer answers itself, with a status
    BLACKHOLE = "blackhole"  # accepted, read, never answered and never closed by us
    RESET = "reset"  # the connection ends with a TCP reset


class Fate(StrEnum):
    """What became of a request. One a request."""

    PASSED = "passed"  # given to a backend
    REFUSED = "refused"
    BLACKHOLED = "blackholed"
    RESET = "reset"
    NO_BACKEND = "no-backend"  # every backend refused the connection
    BAD = "bad"  # the head could not be passed on


FATE_OF = {Action.REFUSE: Fate.REFUSED, Action.BLACKHOLE: Fate.BLACKHOLED, Action.RESET: Fate.RESET}


@dataclass
class Rule:
    """A pattern searched for in the path, what happens, and how often it did."""

    id: int
    action: Action
    pattern: str
    status: int = 503
    hits: int = 0

    def __post_init__(self) -> None:
        """Refuse a pattern that is no regular expression now, not at the first request."""
        self._compiled = compiled(self.pattern)
        if not 400 <= self.status <= 599:
            raise ValueError(f"status={self.status}: a refusal answers 400 to 599")

    def matches(self, path: str) -> bool:
        """Whether this rule decides about `path`."""
        return self._compiled.search(path) is not None


@dataclass(frozen=True, kw_only=True)
class Dial:
    """One request as it was seen: when, from where, for what, and what became of it."""

    at: float  # seconds on the machine's monotonic clock
    client: str
    method: str
    path: str
    fate: Fate
    backend: str = ""
    rule: int | None = None
    detail: str = ""


@dataclass
class Account:
    """Counts by path and fate for everything, and the last heads in full."""

    _counts: dict[str, dict[Fate, int]] = field(default_factory=dict)
    _recent: deque[Dial] = field(default_factory=lambda: deque(maxlen=LONGEST_RECORD))

    def add(self, dial: Dial) -> None:
        """Count a request. Past a number of different paths new ones share one entry: a bound, not a loss."""
        path = dial.path[:_LONGEST_PATH]
        if path not in self._counts and len(self._counts) >= MOST_PATHS:
            path = OTHER_PATHS
        counts = self._counts.setdefault(path, {})
        counts[dial.fate] = counts.get(dial.fate, 0) + 1
        self._recent.append(dial)

    def seen(self, pattern: str) -> dict[str, int]:
        """How many requests with a matching path met each fate; every fate is named."""
        wanted = compiled(pattern)
        total = {fate.value: 0 for fate in Fate}
        for path, counts in self._counts.items():
            if wanted.search(path):
                for fate, count in counts.items():
                    total[fate.value] += count
        return total

    def recent(self, pattern: str, *, most: int) -> list[dict[str, Any]]:
        """The newest matching requests, oldest first."""
        wanted = compiled(pattern)
        matching = [asdict(dial) for dial in self._recent if wanted.search(dial.path)]
        return matching[-most:] if most > 0 else []


class RuleBook:
    """Rules in the order they were made; the first that matches decides."""

    def __init__(self) -> None:
        self._rules: dict[int, Rule] = {}
        self._next = 1

    def add(self, action: Action, pattern: str, *, status: int = 503) -> Rule:
        """A new rule behind the others."""
        rule = Rule(self._next, action, pattern, status)
        self._rules[rule.id] = rule
        self._next += 1
        return rule

    def lift(self, rule_id: int) -> Rule:
        """Take a rule out and say what it did; an unknown one is an error, not a shrug."""
        if rule_id not in self._rules:
            raise KeyError(f"rule={rule_id}: there is no such rule; try: one of {sorted(self._rules)}")
        return self._rules.pop(rule_id)

    def hits(self, rule_id: int) -> int:
        """How many requests a rule decided about."""
        if rule_id not in self._rules:
            raise KeyError(f"rule={rule_id}: there is no such rule; try: one of {sorted(self._rules)}")
        return self._rules[rule_id].hits

    def decide(self, head: RequestHead) -> Rule | None:
        """The rule for this request, counted; `None` passes it on."""
        for rule in self._rules.values():
            if rule.matches(head.path):
                rule.hits += 1
                return rule
        return None


class RoundRobin:
    """Backends in turn. The list may change at any moment; the turn goes on."""

    def __init__(self, backends: Iterable[tuple[str, int]] = ()) -> None:
        self._backends = tuple(backends)
        self._turn = 0

    @property
    def backends(self) -> tuple[tuple[str, int], ...]:
        """As they stand now."""
        return self._backends

    def replace(self, backends: Iterable[tuple[str, int]]) -> None:
        """A new list; the same one again keeps the turn where it is."""
        self._backends = tuple(backends)

    def order(self) -> list[tuple[str, int]]:
        """Whom to try for the next request, first to last: each once, another one first each time."""
        if not self._backends:
            return []
        start = self._turn % len(self._backends)
        self._turn += 1
        return [*self._backends[start:], *self._backends[:start]]


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, or a `ValueError` that quotes it."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern={pattern!r}: no regular expression: {error}") from error
