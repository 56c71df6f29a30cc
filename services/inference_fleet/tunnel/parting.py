"""Many sessions left at once: what runs in them may finish, and none that is slow to leave holds up another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from inference_fleet.settings import Deadline
    from inference_fleet.tunnel.session import Session


async def part(sessions: Collection[Session], deadline: Deadline) -> bool:
    """Wait for running streams until the deadline, then close every session; True when all streams finished in time."""
    finished = await asyncio.gather(*(session.drained(deadline) for session in sessions))
    await asyncio.gather(*(session.close() for session in sessions))
    return all(finished)
