"""How long to wait before the next dial: full jitter applied after the cap, reset only by a session that lasted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ReconnectSchedule:
    """Doubling ceilings from `min_s` to `max_s`; each wait is drawn from [min_s, ceiling].

    A replica that accepts and dies at once does not reset the schedule, so a rolling restart meets the longest
    ceiling and not a storm.
    """

    def __init__(
        self, *, min_s: float, max_s: float, reset_after_s: float, draw: Callable[[], float]
    ) -> None:
        """`draw` gives uniform numbers in [0, 1)."""
        self._min_s = min_s
        self._max_s = max_s
        self._reset_after_s = reset_after_s
        self._draw = draw
        self._failures = 0

    def next_wait_s(self, *, lasted_s: float = 0.0) -> float:
        """The wait after a dial that failed (`lasted_s` 0) or a session that lasted so long."""
        if lasted_s >= self._reset_after_s:
            self._failures = 0
        ceiling = self._max_s
        if self._failures < 64:  # 2**64 times anything is past every cap
            ceiling = min(self._max_s, self._min_s * 2.0**self._failures)
        self._failures += 1
        return max(self._min_s, ceiling * self._draw())
