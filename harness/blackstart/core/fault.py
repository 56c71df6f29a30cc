"""What a look for a fault's effect came to, and what is said when it was not seen: one nobody saw proves nothing.

| finding        | says                                        | a spec that stands on the fault        |
|----------------|---------------------------------------------|----------------------------------------|
| `confirmed`    | its effect was seen                         | may pass                               |
| `mismatch`     | something else was seen                     | cannot pass: `FaultNotConfirmed`       |
| `inconclusive` | nothing was there that could have shown it  | cannot pass: `FaultNotConfirmed`       |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Finding(StrEnum):
    """The closed vocabulary of looks for a fault's effect."""

    CONFIRMED = "confirmed"
    MISMATCH = "mismatch"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Evidence:
    """A finding, and what was seen."""

    finding: Finding
    seen: str

    @property
    def confirmed(self) -> bool:
        """Whether the effect was seen."""
        return self.finding is Finding.CONFIRMED

    def __str__(self) -> str:
        return f"{self.finding.value}: {self.seen}"


class FaultNotConfirmed(RuntimeError):
    """The fault was put in and its effect was not seen, so nothing that was asserted under it counts."""


class FaultNotLifted(RuntimeError):
    """The fault was taken out and its effect is still there: what comes next would suffer from it."""
