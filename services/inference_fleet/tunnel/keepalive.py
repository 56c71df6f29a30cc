"""When to ping and when to give a link up: a pure schedule in which any received byte is a sign of life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LATE_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Pulse:
    """What to do now: send a ping, give the link up, or look again in `wait_s` seconds."""

    ping: bool
    dead: bool
    wait_s: float


class Keepalive:
    """A silent link is pinged after `interval_s`; what stays silent `timeout_s` longer is dead.

    Both sides run one, so both notice a half-open link within `interval_s + timeout_s` of the last byte. An
    observer that comes late to its own appointment (a stalled loop, a stopped process) first looks at what has
    come in meanwhile before it judges anybody.
    """

    def __init__(self, *, interval_s: float, timeout_s: float, now: float) -> None:
        """`now` counts as the first sign of life."""
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._late_s = timeout_s * _LATE_SHARE
        self._heard = now
        self._pinged: float | None = None
        self._appointment = now

    def heard(self, now: float) -> None:
        """Bytes came in, whatever they say."""
        self._heard = now
        self._pinged = None

    def pulse(self, now: float) -> Pulse:
        """Judge the silence so far."""
        late = now - self._appointment > self._late_s
        pulse = self._judge(now, late=late)
        self._appointment = now + pulse.wait_s
        return pulse

    def _judge(self, now: float, *, late: bool) -> Pulse:
        if self._pinged is not None:
            left = self._pinged + self._timeout_s - now
            if left <= 0 and late:
                return Pulse(ping=False, dead=False, wait_s=self._late_s)
            return Pulse(ping=False, dead=left <= 0, wait_s=self._within(left))
        left = self._heard + self._interval_s - now
        if left > 0:
            return Pulse(ping=False, dead=False, wait_s=left)
        self._pinged = now
        return Pulse(ping=True, dead=False, wait_s=self._within(self._timeout_s))

    def _within(self, left: float) -> float:
        """An answer begins another silence, which is to be asked about in its own time."""
        return max(0.0, min(left, self._interval_s))
