"""What a fleet for rehearsals is made of, checked once, so that a wrong number is named before anything starts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from inference_fleet.settings import Timings

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_MOST_NODES = 64
_MOST_COMMANDS = 2
_PRESETS = ("drill", "production")


class OptionError(ValueError):
    """An option no fleet can be built from: the thing, its value, what is wrong, and the remedy."""

    def __init__(self, thing: str, value: object, wrong: str, remedy: str) -> None:
        self.thing, self.value, self.wrong, self.remedy = thing, value, wrong, remedy
        super().__init__(f"{thing}={value}: {wrong}; try: {remedy}")


@dataclass(frozen=True, kw_only=True)
class FleetOptions:
    """How many nodes, on which timings, and what is unusual about them.

    | field               | meaning                                                                             |
    |---------------------|-------------------------------------------------------------------------------------|
    | `frontends`         | replicas, `frontend-0` and on                                                       |
    | `workers`           | `worker-0` and on; `worker-N` serves the model `babbler-N`                          |
    | `agents`            | `agent-0` and on: tunnels like a worker's, never placed on                          |
    | `preset`            | `drill` or `production`                                                             |
    | `timings_s`         | single `Timings` fields that differ, in seconds                                     |
    | `spread`            | worker N dials frontend N modulo frontends itself; else all dial the balancer       |
    | `own_postgres`      | a server of this fleet's own, which a spec may hurt                                 |
    | `tokens_per_second` | the pace of every model; None: as fast as it goes                                   |
    | `commands`          | by name, the command of a model that every worker serves beside its own; two at most |
    | `advertise`         | false: replicas are present but not dialable                                        |
    | `peer_links`        | each of two replicas is dialled by the other through a link that can be cut         |
    | `tls`               | replicas speak TLS, to workers and to each other; only with `spread`                 |
    | `faketime`          | names of nodes whose clock can be skewed live                                        |
    | `env`               | variables added per node name, over everything else                                 |
    """

    frontends: int = 2
    workers: int = 2
    agents: int = 0
    preset: str = "drill"
    timings_s: Mapping[str, float] = field(default_factory=dict)
    spread: bool = False
    own_postgres: bool = False
    tokens_per_second: float | None = None
    commands: Mapping[str, Sequence[str]] = field(default_factory=dict)
    advertise: bool = True
    peer_links: bool = False
    tls: bool = False
    faketime: Collection[str] = ()
    env: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse, by name, what cannot be started."""
        for thing, value, fewest in (
            ("frontends", self.frontends, 1),
            ("workers", self.workers, 0),
            ("agents", self.agents, 0),
        ):
            if not fewest <= value <= _MOST_NODES:
                raise OptionError(
                    thing, value, f"must be from {fewest} to {_MOST_NODES}", f"{thing}={max(fewest, 2)}"
                )
        if self.preset not in _PRESETS:
            raise OptionError("preset", self.preset, "no such preset", " or ".join(_PRESETS))
        if self.tokens_per_second is not None and not self.tokens_per_second > 0:
            raise OptionError("tokens_per_second", self.tokens_per_second, "must be above 0", "20")
        if len(self.commands) > _MOST_COMMANDS:
            raise OptionError(
                "commands",
                ", ".join(self.commands),
                "a worker has no ports for so many",
                f"{_MOST_COMMANDS} at most",
            )
        if self.peer_links:
            self._require_a_pair()
        if self.tls and (self.peer_links or not self.spread):
            wrong = "what stands between two nodes reads what it passes, which TLS is there to prevent"
            raise OptionError("tls", self.tls, wrong, "spread=True, and no peer_links")
        for name in (*self.env, *self.faketime):
            if name not in self.node_names:
                raise OptionError(
                    "node", name, "is not in this fleet", f"one of {', '.join(self.node_names)}"
                )
        _ = self.timings

    def _require_a_pair(self) -> None:
        """A replica has one address for all its peers: with a third one a link could not tell who dials it."""
        if self.frontends != 2:
            wrong = f"with {self.frontends} frontends a cut could not tell one pair from another"
            raise OptionError("peer_links", self.peer_links, wrong, "frontends=2")
        if not self.advertise:
            raise OptionError(
                "peer_links", self.peer_links, "nobody dials what is not advertised", "advertise=True"
            )

    @property
    def timings(self) -> Timings:
        """The very timings the fleet's processes run on: every wait takes its window from here."""
        try:
            return replace(Timings.preset(self.preset), **self.timings_s)
        except TypeError as unknown:
            raise OptionError("timings_s", dict(self.timings_s), str(unknown), "fields of Timings") from None

    @property
    def node_names(self) -> tuple[str, ...]:
        """Every node's name, frontends first."""
        return (
            *(f"frontend-{index}" for index in range(self.frontends)),
            *(f"worker-{index}" for index in range(self.workers)),
            *(f"agent-{index}" for index in range(self.agents)),
        )
