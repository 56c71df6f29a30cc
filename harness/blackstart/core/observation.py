"""What a wait saw: counted, bounded and told in full when it fails; the clock is handed in by the caller."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from blackstart.core.matchers import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from blackstart.core.deadline import Budget

_LONGEST_TREND = 8


class _Unseen(Enum):
    UNSEEN = "nothing seen"


UNSEEN: Final = _Unseen.UNSEEN
"""Stands where no value was seen; it equals no value a probe can return."""


@dataclass
class _Phase:
    """A stretch of looks that all gave the same answer."""

    text: str
    since_s: float
    looks: int = 1


@dataclass(kw_only=True)
class Observation:
    """The account of one wait. `saw` and `failed` are called once a look with the seconds since the start."""

    kind: str
    what: str
    awaited: str
    budget: Budget
    looks: int = 0
    matches: int = 0
    errors: int = 0
    first: Any = UNSEEN
    last: Any = UNSEEN
    last_error: BaseException | None = None
    last_error_s: float = 0.0
    widest_gap_s: float = 0.0
    ended_s: float = 0.0
    _trend: list[_Phase] = field(default_factory=list)
    _dropped: int = 0

    @property
    def seen(self) -> int:
        """Looks that returned a value: an error is a look, but nothing was seen."""
        return self.looks - self.errors

    @property
    def last_matched(self) -> bool:
        """Whether the newest look saw the awaited value."""
        return self._matched_last

    _matched_last: bool = False

    def saw(self, value: object, *, matched: bool, at_s: float) -> None:
        """A look that returned a value."""
        self._look(at_s)
        if self.first is UNSEEN:
            self.first = value
        self.last = value
        self._matched_last = matched
        self.matches += matched
        self._continue_trend(shown(value), at_s)

    def failed(self, error: BaseException, *, at_s: float) -> None:
        """A look whose probe raised: kept, counted, and never a match."""
        self._look(at_s)
        self.errors += 1
        self._matched_last = False
        self.last_error = error
        self.last_error_s = at_s
        self._continue_trend(_error_text(error), at_s)

    def finish(self, *, at_s: float) -> None:
        """The wait is over; the gap up to its end counts as a gap too."""
        self.widest_gap_s = max(self.widest_gap_s, at_s - self.ended_s)
        self.ended_s = at_s

    def trend(self) -> str:
        """The answers in order, equal neighbours folded: `'connected' (12 looks) -> 'gone' (3 looks from 4.1 s)`."""
        parts = [
            f"{phase.text} ({phase.looks} look{'s' if phase.looks > 1 else ''} from {phase.since_s:.3g} s)"
            for phase in self._trend
        ]
        if self._dropped:
            parts.insert(0, f"({self._dropped} earlier changes)")
        return " -> ".join(parts) or "nothing seen"

    def data(self) -> dict[str, Any]:
        """The fields of the journal's `wait` event."""
        return {
            "wait": self.kind,
            "what": self.what,
            "awaited": self.awaited,
            "budget_s": round(self.budget.total_s, 4),
            "declared_s": round(self.budget.declared_s, 4),
            "elapsed_s": round(self.ended_s, 4),
            "used_percent": self.budget.used_percent(self.ended_s),
            "looks": self.looks,
            "matches": self.matches,
            "errors": self.errors,
            "first": None if self.first is UNSEEN else shown(self.first),
            "last": None if self.last is UNSEEN else shown(self.last),
            "last_error": None if self.last_error is None else _error_text(self.last_error),
            "trend": self.trend(),
        }

    def text(self, verdict: str, *, processes: str = "") -> str:
        """The failure text: what was awaited, what was seen, how it moved, the last error, the budget."""
        lines = [
            f"{self.kind}: {verdict}",
            f"  probe      {self.what}",
            f"  awaited    {self.awaited}",
            f"  looked     {self.looks} times, {self.errors} errors, {self.matches} matches",
            f"  first      {self.first.value if self.first is UNSEEN else shown(self.first)}",
            f"  last       {self.last.value if self.last is UNSEEN else shown(self.last)}",
            f"  trend      {self.trend()}",
            f"  last error {self._last_error_text()}",
            f"  budget     {self.budget}, used {self.budget.used_percent(self.ended_s)} %",
        ]
        if processes:
            lines.append(f"  processes  {processes}")
        return "\n".join(lines)

    def _look(self, at_s: float) -> None:
        self.looks += 1
        self.widest_gap_s = max(self.widest_gap_s, at_s - self.ended_s)
        self.ended_s = at_s

    def _continue_trend(self, text: str, at_s: float) -> None:
        if self._trend and self._trend[-1].text == text:
            self._trend[-1].looks += 1
            return
        self._trend.append(_Phase(text, at_s))
        if len(self._trend) > _LONGEST_TREND:
            del self._trend[0]
            self._dropped += 1

    def _last_error_text(self) -> str:
        if self.last_error is None:
            return "none"
        return f"{_error_text(self.last_error)} (at {self.last_error_s:.3g} s)"


@dataclass
class Probe:
    """A probe that keeps the last thing it saw and the last error, so a failure reports whichever happened.

    A refused request, an answer that does not decode and a worker that never registered all look like an
    empty list otherwise. Call it in a wait, or ask `sample()`, which gives `UNSEEN` (equal to nothing a
    service says) instead of raising.
    """

    ask: Callable[[], Any]
    name: str = ""
    last: Any = UNSEEN
    last_error: BaseException | None = None

    def __call__(self) -> Any:
        """Ask once; an error is kept and raised."""
        try:
            value = self.ask()
        except Exception as error:
            self.last_error = error
            raise
        self.last, self.last_error = value, None
        return value

    def sample(self) -> Any:
        """Ask once; an error is kept and gives `UNSEEN`, which no comparison for equality mistakes for an answer."""
        try:
            return self()
        except Exception:  # noqa: BLE001 - kept in last_error, which report() tells
            return UNSEEN

    def report(self) -> str:
        """Both memories in one line."""
        seen = "nothing was ever seen" if self.last is UNSEEN else f"last seen {shown(self.last)}"
        failed = "no error since" if self.last_error is None else f"then {_error_text(self.last_error)}"
        return f"{self.name or 'probe'}: {seen}, {failed}"


def _error_text(error: BaseException) -> str:
    text = str(error)
    shortened = text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]} ..."
    return f"{type(error).__name__}: {shortened}" if shortened else type(error).__name__


_LONGEST_ERROR = 300
