"""How late the event loop runs: an observer that lags must blame itself before it blames anybody else."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_LOOKS_A_SAMPLE = 10


class LagWindow:
    """The worst lateness among the last looks of one sample; pure, so its arithmetic needs no loop."""

    def __init__(self, looks: int = _LOOKS_A_SAMPLE) -> None:
        self._looks = looks
        self._seen: list[float] = []

    def add(self, *, due: float, woke: float) -> float:
        """Record one look that was due at one moment and came at another; gives the sample's worst so far."""
        self._seen.append(max(0.0, woke - due))
        del self._seen[: -self._looks]
        return max(self._seen)


async def sample_loop_lag(
    *, every_s: float, report: Callable[[float], object], looks: int = _LOOKS_A_SAMPLE
) -> None:
    """Look `looks` times every `every_s` seconds, for ever, and report the worst lateness of the last sample.

    A blocked loop is seen at the first look after it, since that look is as late as the block was long.
    """
    loop = asyncio.get_running_loop()
    window = LagWindow(looks)
    pause = every_s / looks
    while True:
        due = loop.time() + pause
        await asyncio.sleep(pause)
        report(window.add(due=due, woke=loop.time()))
