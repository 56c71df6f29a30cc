"""The clock of a session's stalls: a timer that runs only while somebody waits to send."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_fleet.tunnel.yamux.stalls import Stalls

_LOOKS: Final = 2
"""Looks in one notice time."""


class StallWatch:
    """A wait is told within twice the notice time, and costs an idle session nothing."""

    def __init__(self, stalls: Stalls, *, notice_s: float, told: Callable[[int, float], None]) -> None:
        """`told` gets the stream (or `CARRIER`) and the time of the look."""
        self.stalls = stalls
        self._notice_s = notice_s
        self._told = told
        self._timer: asyncio.TimerHandle | None = None
        self._over = False

    def see(self) -> None:
        """Something was sent or could not be."""
        if self._timer is None and self.stalls and not self._over:
            self._timer = asyncio.get_running_loop().call_later(self._notice_s / _LOOKS, self._look)

    def stop(self) -> None:
        """Nobody is told any more."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        for stream in self.stalls.look(now, self._notice_s):
            self._told(stream, now)
        self.see()
