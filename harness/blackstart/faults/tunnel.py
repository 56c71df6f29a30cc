"""A path blocked at the balancer: what dials it is refused (or swallowed, or reset) while every other path passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackstart.core.fault import Evidence, Finding
from blackstart.faults.fault import Fault
from blackstart.net.balancer import Action, Seen

if TYPE_CHECKING:
    from blackstart.net.balancer import Balancer

_COUNT_OF = {Action.REFUSE: "refused", Action.BLACKHOLE: "blackholed", Action.RESET: "reset"}


class PathBlocked(Fault):
    """New requests with a matching path meet `action`; live ones end too unless `cut_live` is false.

    Seen when at least one dial met the rule, none passed, and (with `cut_live`) nothing goes through: "nobody got
    through" alone is also what a client shows that never dialled.
    """

    family = "network"

    def __init__(
        self, balancer: Balancer, pattern: str, *, action: Action = Action.REFUSE, cut_live: bool = True
    ) -> None:
        self._balancer = balancer
        self._pattern = pattern
        self._action = action
        self._cut_live = cut_live
        self._rule: int | None = None
        self._before = Seen()

    def describe(self) -> str:
        """`path ^/api/node/.*/tunnel$ refused at balancer`."""
        return f"path {self._pattern} {_COUNT_OF[self._action]} at {self._balancer.node}"

    @property
    def since(self) -> Seen:
        """What came for the path since it was blocked."""
        return self._balancer.seen(self._pattern).since(self._before)

    def inject(self) -> None:
        """The rule first, so that what is cut cannot come back; whatever passed until then is none of ours."""
        self._rule = self._balancer.block(self._pattern, action=self._action)
        self._before = self._balancer.seen(self._pattern)
        if self._cut_live:
            self._balancer.cut(self._pattern)

    def confirm(self) -> Evidence:
        """A dial met the rule and none passed."""
        since = self.since
        met = getattr(since, _COUNT_OF[self._action])
        live = self._balancer.live(self._pattern) if self._cut_live else 0
        seen = f"{met} dials {_COUNT_OF[self._action]}, {since.passed} passed, {live} still live"
        if since.passed or live:
            return Evidence(Finding.MISMATCH, seen)
        return Evidence(Finding.CONFIRMED if met else Finding.INCONCLUSIVE, seen)

    def lift(self) -> None:
        """The rule is taken away; whoever wants through must dial again."""
        if self._rule is not None:
            self._balancer.lift(self._rule)
            self._rule = None

    def confirm_lifted(self) -> Evidence:
        """The balancer has no rule of ours any more."""
        left = [rule.pattern for rule in self._balancer.rules if rule.pattern == self._pattern]
        return Evidence(
            Finding.MISMATCH if left else Finding.CONFIRMED, f"{len(left)} rules left for the path"
        )
