"""What a peer may do only so often a second: each frame of these costs this end more than it costs the peer to send."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_fleet.tunnel.yamux.wire import Breach, ProtocolError

if TYPE_CHECKING:
    from inference_fleet.tunnel.yamux.limits import Limits


class Budget:
    """So many in any second that begins with one of them; one more is a breach by its name. The clock is the caller's."""

    __slots__ = ("_breach", "_limit", "_since", "_what", "spent")

    def __init__(self, limit: int, breach: Breach, what: str) -> None:
        """`what` names, in the plural, the things that are counted."""
        self._limit = limit
        self._breach = breach
        self._what = what
        self._since = float("-inf")
        self.spent = 0

    def spend(self, now: float) -> None:
        """Count one more; raises `ProtocolError` past the budget."""
        if now - self._since >= 1:
            self._since, self.spent = now, 0
        self.spent += 1
        if self.spent > self._limit:
            raise ProtocolError(self._breach, f"more than {self._limit} {self._what} in a second")


def budgets_of(limits: Limits) -> tuple[Budget, Budget, Budget]:
    """Those of one session: for resets, for pings, for what says nothing."""
    return (
        Budget(limits.resets_per_second, Breach.RESET_FLOOD, "resets or strays"),
        Budget(limits.pings_per_second, Breach.PING_FLOOD, "pings"),
        Budget(limits.empty_frames_per_second, Breach.EMPTY_FLOOD, "frames that say nothing"),
    )
