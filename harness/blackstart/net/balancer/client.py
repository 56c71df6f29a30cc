"""A spec's view of the balancer: a child process that can be told, live, which path fails and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from blackstart.net.balancer.rules import Action, Dial, Fate, Rule
from blackstart.net.proxy_child import ProxyChild

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blackstart.net.leases import PortLease
    from blackstart.process import Spawner
    from blackstart.record import Run

_ANY = ""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What became of requests with a matching path, since the balancer started."""

    passed: int = 0
    refused: int = 0
    blackholed: int = 0
    reset: int = 0
    no_backend: int = 0
    bad: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.passed + self.refused + self.blackholed + self.reset + self.no_backend + self.bad

    def since(self, earlier: Seen) -> Seen:
        """What came after an earlier look."""
        return Seen(
            passed=self.passed - earlier.passed,
            refused=self.refused - earlier.refused,
            blackholed=self.blackholed - earlier.blackholed,
            reset=self.reset - earlier.reset,
            no_backend=self.no_backend - earlier.no_backend,
            bad=self.bad - earlier.bad,
        )


class Balancer(ProxyChild):
    """Workers dial this, never a replica. Backends and rules outlive a restart; counts and connections do not.

    | call                        | effect                                                        |
    |-----------------------------|---------------------------------------------------------------|
    | `block(path)`               | new requests with a matching path are refused by the balancer |
    | `block(path, action=...)`   | ... get no answer, or a reset                                  |
    | `cut(path)`                 | live connections end with a reset                              |
    | `stall(path)`, `resume`     | live connections move nothing, and are not closed               |
    | `seen(path)`, `dials(path)` | what came and what became of it                                |

    A path is a regular expression searched for in the request's path.
    """

    module = "blackstart.net.balancer"

    def __init__(
        self,
        spawner: Spawner,
        run: Run,
        *,
        backends: Iterable[str] = (),
        node: str = "balancer",
        spec: str | None = None,
        head_s: float = 10.0,
        connect_s: float = 5.0,
        start_s: float = 30.0,
        ports: PortLease | None = None,
        later: bool = False,
    ) -> None:
        self._backends = tuple(backends)
        self._rules: dict[int, Rule] = {}
        self._ids: dict[int, int] = {}  # ours, which stay, to the child's, which begin anew with it
        self._next = 1
        self._head_s = head_s
        self._connect_s = connect_s
        super().__init__(spawner, run, node=node, spec=spec, start_s=start_s, ports=ports, later=later)

    @property
    def url(self) -> str:
        """Where workers and clients dial."""
        return f"http://{self.address}"

    @property
    def backends(self) -> tuple[str, ...]:
        """Whom it passes requests to, as `HOST:PORT`."""
        return self._backends

    def set_backends(self, backends: Iterable[str]) -> None:
        """Another list, from the next request on; live connections stay. The list it has already is not told again."""
        wanted = tuple(backends)
        if wanted != self._backends:
            self.control.command("backends", backends=list(wanted))
            self._backends = wanted

    def block(self, pattern: str, *, action: Action | str = Action.REFUSE, status: int = 503) -> int:
        """A rule behind the others; the number is what `lift` and `hits` take."""
        number, self._next = self._next, self._next + 1
        rule = Rule(number, Action(action), pattern, status)
        self._ids[number] = self._tell(rule)
        self._rules[number] = rule
        return number

    def lift(self, rule: int) -> int:
        """Take a rule away; how many requests it decided about since the child started."""
        if rule not in self._rules:
            raise KeyError(f"rule={rule}: {self.node} has no such rule; try: one of {sorted(self._rules)}")
        hits = int(self.control.command("lift", rule=self._ids[rule])["hits"])
        del self._rules[rule], self._ids[rule]
        return hits

    def hits(self, rule: int) -> int:
        """How many requests a standing rule decided about since the child started."""
        if rule not in self._rules:
            raise KeyError(f"rule={rule}: {self.node} has no such rule; try: one of {sorted(self._rules)}")
        return int(self.control.command("hits", rule=self._ids[rule])["hits"])

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Those that stand, in order."""
        return tuple(self._rules.values())

    def cut(self, pattern: str = _ANY) -> int:
        """Reset live connections; how many there were."""
        return int(self.control.command("cut", pattern=pattern)["count"])

    def stall(self, pattern: str = _ANY) -> int:
        """Hold live connections half-open; how many there were."""
        return int(self.control.command("stall", pattern=pattern)["count"])

    def resume(self, pattern: str = _ANY) -> int:
        """Let stalled connections move again; how many matched."""
        return int(self.control.command("resume", pattern=pattern)["count"])

    def live(self, pattern: str = _ANY) -> int:
        """Connections that go through at this moment."""
        return int(self.control.command("live", pattern=pattern)["count"])

    def seen(self, pattern: str = _ANY) -> Seen:
        """Counts by fate."""
        counts = self.control.command("seen", pattern=pattern)["seen"]
        return Seen(**{fate.value.replace("-", "_"): int(counts[fate.value]) for fate in Fate})

    def dials(self, pattern: str = _ANY, *, most: int = 100) -> tuple[Dial, ...]:
        """The newest requests, oldest first, each with its client, backend and fate."""
        told = self.control.command("recent", pattern=pattern, most=most)["dials"]
        return tuple(Dial(**{**dial, "fate": Fate(dial["fate"])}) for dial in told)

    def _arguments(self) -> Sequence[str]:
        return (
            "--backends",
            "[" + ", ".join(f'"{backend}"' for backend in self._backends) + "]",
            "--head-s",
            str(self._head_s),
            "--connect-s",
            str(self._connect_s),
        )

    def _started(self) -> None:
        for number, rule in self._rules.items():
            self._ids[number] = self._tell(rule)

    def _tell(self, rule: Rule) -> int:
        told = self.control.command(
            "rule", action=rule.action.value, pattern=rule.pattern, status=rule.status
        )
        return int(told["rule"])
