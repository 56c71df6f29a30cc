"""A few attempts a window for each client address, in bounded memory; pure, the clock comes in."""

from __future__ import annotations

from collections import OrderedDict, deque

ATTEMPTS = 5
_ADDRESSES = 10_000


class Limiter:
    """A sliding window: at most `attempts` in any `window_s` seconds from one client.

    It remembers at most `addresses` clients and forgets the one that asked longest ago, so a flood from many
    addresses costs memory once and frees old clients early; it never locks everybody out.
    """

    def __init__(self, *, window_s: float, attempts: int = ATTEMPTS, addresses: int = _ADDRESSES) -> None:
        self._window_s = window_s
        self._attempts = attempts
        self._addresses = addresses
        self._seen: OrderedDict[str, deque[float]] = OrderedDict()

    def retry_after(self, client: str, *, now: float) -> float | None:
        """Count one attempt: None when it may pass, else the seconds until one may (it is not counted then)."""
        stamps = self._seen.setdefault(client, deque(maxlen=self._attempts))
        self._seen.move_to_end(client)
        while stamps and stamps[0] <= now - self._window_s:
            stamps.popleft()
        if len(stamps) >= self._attempts:
            return stamps[0] + self._window_s - now
        stamps.append(now)
        if len(self._seen) > self._addresses:
            self._seen.popitem(last=False)
        return None

    def __len__(self) -> int:
        return len(self._seen)
