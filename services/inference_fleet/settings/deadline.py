"""A caller's remaining time as one value that crosses every hop and only shortens."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, order=True)
class Deadline:
    """A moment on the monotonic clock (seconds) after which nothing may be waited for."""

    at: float

    @classmethod
    def after(cls, seconds: float, *, now: float | None = None) -> Self:
        """The moment `seconds` from now."""
        return cls((time.monotonic() if now is None else now) + seconds)

    @classmethod
    def from_budget_ms(cls, budget_ms: int | None, *, longest_s: float) -> Self:
        """The receiving end of a hop: the sender's remaining milliseconds, and never more than `longest_s`.

        No budget (`None`) means the sender named none, so the receiver's own limit holds alone.
        """
        return cls.after(longest_s if budget_ms is None else min(longest_s, budget_ms / 1000))

    def shorten(self, seconds: float) -> Self:
        """This deadline or `seconds` from now, whichever comes first."""
        return min(self, type(self).after(seconds))

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.at - time.monotonic())

    @property
    def expired(self) -> bool:
        """Whether the caller's time has run out. Checked before anything is said about anybody else."""
        return time.monotonic() >= self.at

    @property
    def budget_ms(self) -> int | None:
        """What to write into the next hop's frame: whole milliseconds, at least 1 while time is left.

        A spent deadline gives `None`: a literal zero would make a peer refuse healthy traffic, and a caller
        checks `expired` before it sends anything.
        """
        left = self.remaining_s
        return max(1, int(left * 1000)) if left > 0 else None
