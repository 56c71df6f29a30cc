"""Whether a process that became ready still lives, told apart from one that is only slow.

| in one look                               | counts as                                          |
|-------------------------------------------|----------------------------------------------------|
| any HTTP answer, an error too             | alive                                              |
| no answer, but a stream had bytes from it | alive: it serves and has no time for probes        |
| neither                                   | a miss; `LOOKS` of them in a row are `silent_s`    |
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LOOKS = 4


async def falls_silent(
    answers: Callable[[float], Awaitable[bool]], heard: Callable[[], int], *, silent_s: float
) -> None:
    """Return once nothing came for `silent_s`; `answers` takes the seconds to wait, `heard` counts the stream's bytes."""
    loop = asyncio.get_running_loop()
    look_s = silent_s / LOOKS
    misses = 0
    while misses < LOOKS:
        due = loop.time() + look_s
        before = heard()
        answered = await answers(look_s)
        await asyncio.sleep(max(0.0, due - loop.time()))
        misses = 0 if answered or heard() != before else misses + 1
