"""The one clock replicas share without trusting each other's wall clocks: the database's, carried forward here."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class SharedClock:
    """The database's time as last read, moved on by this process's monotonic clock.

    A replica whose wall clock is an hour off still makes tokens its peers accept, and a database that is down
    for a while does not stop the clock.
    """

    def __init__(self, database_s: float, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._database_s = database_s
        self._read_at = monotonic()

    def observe(self, database_s: float) -> None:
        """Take a newer reading."""
        self._database_s = database_s
        self._read_at = self._monotonic()

    def now(self) -> float:
        """Seconds since the epoch on the database's clock."""
        return self._database_s + self._monotonic() - self._read_at
