"""The event loop's lateness, measured by the loop itself."""

from __future__ import annotations

import asyncio
import time

from inference_fleet.settings import Timings
from inference_fleet.telemetry.lag import LagWindow, sample_loop_lag

_SAMPLE_S = Timings.drill().loop_lag_sample_s


def test_the_worst_look_of_the_sample_counts_and_leaves_with_its_sample() -> None:
    window = LagWindow(looks=3)
    assert window.add(due=1.0, woke=1.5) == 0.5
    assert window.add(due=2.0, woke=2.0) == 0.5
    assert window.add(due=3.0, woke=3.1) == 0.5
    assert abs(window.add(due=4.0, woke=4.2) - 0.2) < 1e-9


def test_a_clock_that_stands_still_is_no_negative_lag() -> None:
    assert LagWindow().add(due=2.0, woke=1.0) == 0.0


def test_a_blocked_loop_is_reported_with_the_length_of_the_block() -> None:
    reports: list[float] = []
    blocked = asyncio.Event()

    def report(lag_s: float) -> None:
        reports.append(lag_s)
        if len(reports) == 1:
            asyncio.get_running_loop().call_soon(
                time.sleep, _SAMPLE_S
            )  # the fault: something blocks the loop
        if lag_s >= _SAMPLE_S / 2:
            blocked.set()

    async def story() -> None:
        sampler = asyncio.create_task(sample_loop_lag(every_s=_SAMPLE_S, report=report))
        async with asyncio.timeout(Timings.drill().handshake_s):
            await blocked.wait()
        sampler.cancel()

    asyncio.run(story())
    assert max(reports) >= _SAMPLE_S / 2
