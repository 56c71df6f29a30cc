"""A process that hangs is told apart from one that is only slow."""

from __future__ import annotations

import asyncio

import pytest

from inference_fleet.settings import Timings
from inference_fleet.worker.liveness import LOOKS, falls_silent

SILENT_S = LOOKS * Timings.drill().backend_poll_s
MISS, ANSWER, BYTES = "miss", "answer", "bytes"


@pytest.mark.parametrize(
    "before",
    [
        [],
        [ANSWER],
        [*[MISS] * (LOOKS - 1), ANSWER],
        [*[MISS] * (LOOKS - 1), BYTES],
        [BYTES] * LOOKS,
    ],
)
def test_only_misses_in_a_row_make_a_process_silent(before: list[str]) -> None:
    script = [*before, *[MISS] * LOOKS]
    looks: list[str] = []
    said = 0

    async def answers(within_s: float) -> bool:
        nonlocal said
        assert within_s == SILENT_S / LOOKS
        looks.append(script[len(looks)])
        said += looks[-1] is BYTES
        return looks[-1] is ANSWER

    asyncio.run(falls_silent(answers, lambda: said, silent_s=SILENT_S))
    assert looks == script, f"given up after {looks}"
