"""When a writer is held back and when it may go on: the rule asyncio's transports have, for ours."""

from __future__ import annotations

from typing import Final

WRITE_HIGH_BYTES: Final = 64 * 1024


def water_marks(high: int | None, low: int | None) -> tuple[int, int]:
    """Low and high water in bytes, from what a caller named of them."""
    if high is None:
        high = WRITE_HIGH_BYTES if low is None else 4 * low
    if low is None:
        low = high // 4
    if not high >= low >= 0:
        raise ValueError(f"high ({high}) must be at least low ({low}), which must be at least 0")
    return low, high
