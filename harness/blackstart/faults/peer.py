"""The road between two nodes cut both ways: each one's address is a link of the harness's, and both links tear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackstart.core.fault import Evidence, Finding
from blackstart.faults.fault import Fault
from blackstart.faults.tunnel import PathBlocked
from blackstart.net.balancer import Action

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from blackstart.net.balancer import Balancer


class PeerCut(Fault):
    """New dials on every road meet `action`, live ones are reset.

    Seen when a dial met it on either road (which of two peers dials the other is theirs to choose), none passed, and
    nothing goes through on any.
    """

    family = "network"

    def __init__(self, roads: Sequence[Balancer], pattern: str, *, action: Action = Action.RESET) -> None:
        """`roads` lead to one node each; `pattern` is the path peers dial there."""
        self._roads = [PathBlocked(road, pattern, action=action) for road in roads]

    def describe(self) -> str:
        """The roads, each with what is done there."""
        return " and ".join(road.describe() for road in self._roads)

    def inject(self) -> None:
        """All of them."""
        for road in self._roads:
            road.inject()

    def confirm(self) -> Evidence:
        """A dial met it somewhere and nothing passed anywhere."""
        return _together([road.confirm() for road in self._roads], enough=any)

    def lift(self) -> None:
        """All of them; whoever wants through must dial again."""
        for road in self._roads:
            road.lift()

    def confirm_lifted(self) -> Evidence:
        """No road has a rule of ours any more."""
        return _together([road.confirm_lifted() for road in self._roads], enough=all)


def _together(looks: Sequence[Evidence], *, enough: Callable[[Iterable[bool]], bool]) -> Evidence:
    """One mismatch decides; else `enough` of the looks must have seen it."""
    seen = "; ".join(look.seen for look in looks)
    if any(look.finding is Finding.MISMATCH for look in looks):
        return Evidence(Finding.MISMATCH, seen)
    saw = enough(look.confirmed for look in looks)
    return Evidence(Finding.CONFIRMED if saw else Finding.INCONCLUSIVE, seen)
