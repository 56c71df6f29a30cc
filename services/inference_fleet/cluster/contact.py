"""Whether an observer has looked often enough lately to believe what it sees of others.

After an outage of the database every stamp is old, and the first to look would find everybody else dead. So whoever
could not look for a while waits until the others have had time to write again.
"""

from __future__ import annotations


class Contact:
    """The contacts of one observer with the database, as moments on the monotonic clock (seconds)."""

    def __init__(self, *, longest_gap_s: float, doubt_s: float) -> None:
        """After more than `longest_gap_s` without a contact, `doubt_s` must pass before stamps are believed."""
        self._longest_gap_s = longest_gap_s
        self._doubt_s = doubt_s
        self._last: float | None = None
        self._doubtful_until: float | None = None

    def made(self, now: float) -> bool:
        """Note a contact; True when what it shows of others may be believed."""
        if self._last is not None and now - self._last > self._longest_gap_s:
            self._doubtful_until = now + self._doubt_s
        self._last = now
        return self._doubtful_until is None or now >= self._doubtful_until
