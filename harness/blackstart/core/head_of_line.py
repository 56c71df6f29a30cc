"""Small requests beside a bulk transfer: what may be claimed of them, on a machine of any speed.

A session that makes small requests wait for bulk parks one of them for the whole transfer. So the claim is about the
worst one: it took a small part of the transfer's window, and not too many times what the worst one took under the same
load with nothing to move. Nothing is claimed of the median: it costs latency, and how much is the machine's affair.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_SHARE: Final = 0.5
"""The most of the window that one small request may take. A whole window would admit what parks requests on a fast machine."""

WINDOW_FACTOR: Final = 8.0
"""So many times as long as the same load with nothing to move, or nothing was moved that could be in anybody's way."""

QUANTILES: Final = (0.5, 0.9, 0.99)
BEYOND: Final = 5
"""A quantile has so many of the sample above it; with fewer it is the worst one under another name."""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """One load, and the small requests made back to back for as long as it lasted. All in seconds."""

    window: float
    probes: Sequence[float]

    @property
    def worst(self) -> float:
        """The longest small request."""
        return max(self.probes)

    @property
    def told(self) -> dict[str, float | int]:
        """For a person: the window, the worst, and of the quantiles those that the sample can separate; milliseconds."""
        figures: dict[str, float | int] = {
            "window_ms": _ms(self.window),
            "probes": len(self.probes),
            "worst_ms": _ms(self.worst),
        }
        ordered = sorted(self.probes)
        for quantile in QUANTILES:
            above = int(len(ordered) * (1 - quantile) + 1e-9)
            if above >= BEYOND:
                value = median(ordered) if quantile == 0.5 else ordered[-above - 1]
                figures[f"p{quantile * 100:g}_ms"] = _ms(value)
        return figures


def objections(*, empty: Beside, bulk: Beside, times: float) -> list[str]:
    """Why service was not kept, in the order in which they count; empty where nothing is to be said.

    `empty` is the control: the same load with nothing to move. Latency is only read where its window shows that `bulk`
    really moved something.
    """
    if bulk.window < WINDOW_FACTOR * empty.window:
        moved, empty_ms = _ms(bulk.window), _ms(empty.window)
        return [
            f"nothing was in the way: the transfer took {moved} ms, not {WINDOW_FACTOR:g} times the {empty_ms} ms of nothing"
        ]
    said = []
    if bulk.worst > WINDOW_SHARE * bulk.window:
        said.append(
            f"a small request was parked: the worst took {_ms(bulk.worst)} of the transfer's {_ms(bulk.window)} ms, "
            f"more than {WINDOW_SHARE:g} of it"
        )
    if bulk.worst > times * empty.worst:
        said.append(
            f"a small request waited out of proportion: the worst took {_ms(bulk.worst)} ms beside the transfer and "
            f"{_ms(empty.worst)} ms beside the same load with nothing to move, more than {times:g} times as long"
        )
    return said


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 2)
