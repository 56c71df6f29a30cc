"""Whether the machine itself stood still: a thread that asks for a short sleep and sees how much longer it got.

The kernel's clock says how long a sleep took. Where it took seconds longer than asked, every process on the machine
may have been late as well, and a deadline that was missed meanwhile says nothing about the product.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class StallWatch:
    """Counts the sleeps that lasted `bound_s` longer than `every_s`. Use it as a context manager."""

    def __init__(
        self,
        *,
        every_s: float,
        bound_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._every_s = every_s
        self._bound_s = bound_s
        self._clock = clock
        self._lock = threading.Lock()
        self._worst_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="blackstart-stall", daemon=True)

    def __enter__(self) -> Self:
        """Watch from now on."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""
        self._stop.set()
        self._thread.join()

    def saw(self, slept_s: float) -> None:
        """One sleep and how long it really took."""
        late_s = slept_s - self._every_s
        if late_s >= self._bound_s:
            with self._lock:
                self._worst_s = max(self._worst_s, late_s)

    def take(self) -> str:
        """What is to be said of the time since the last call; empty when the machine kept going."""
        with self._lock:
            worst_s, self._worst_s = self._worst_s, 0.0
        return f"the machine stood still for {worst_s:.1f} s" if worst_s else ""

    def _watch(self) -> None:
        before = self._clock()
        while not self._stop.wait(self._every_s):
            now = self._clock()
            self.saw(now - before)
            before = now
