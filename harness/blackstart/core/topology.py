"""What a cluster is made of, as facts: which services, how many of each, in which order, within which budgets.

Nothing here starts anything. `cluster.Cluster` turns a `Topology` into processes; a person with a cluster of their own
writes a `Service` (a small class), or an `ArgvService` (the same as data, which a file can hold).

| word        | meaning                                                                            |
|-------------|------------------------------------------------------------------------------------|
| service     | how one kind of process is started, known to be ready, and ended                   |
| node        | one process of a service, named `<service>-<index>`; keeps ports over restarts     |
| place       | what a node's command may use: its name, ports, folders, and the places of others  |
| budget      | a named number of seconds the topology declares; waits take theirs from here       |
"""

from __future__ import annotations

import re
import signal
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

HOST = "127.0.0.1"
FAULTS = frozenset({"kill", "stop", "pause", "restart", "cold-restart"})
DEFAULT_BUDGETS: Mapping[str, float] = MappingProxyType({"ready": 30.0, "stop": 15.0, "death": 10.0})

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?")


class TopologyError(ValueError):
    """A topology that cannot be started; the text names the part, what is wrong and the remedy."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one node lives. Ports and folders stay the same over its restarts; the incarnation counts them."""

    name: str
    index: int
    ports: tuple[int, ...]
    data_dir: Path
    host: str = HOST
    incarnation: int = 0
    others: Mapping[str, Place] = field(default_factory=dict, repr=False, compare=False)

    @property
    def port(self) -> int:
        """The first port, which most services have only one of."""
        if not self.ports:
            raise TopologyError(f"{self.name}: has no port; try: Service.ports = 1")
        return self.ports[0]

    @property
    def address(self) -> str:
        """`HOST:PORT` of the first port."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class Command:
    """What to execute: an argument list (never a shell), variables added to the environment, a working folder."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)  # holds secrets
    cwd: Path | None = None


@dataclass(frozen=True, kw_only=True)
class HttpReady:
    """Ready when `GET path` answers `status` on the node's port of that number.

    With `ca_file` it is asked over TLS, and believed on that authority's word alone.
    """

    path: str = "/readyz"
    status: int = 200
    port: int = 0
    ca_file: str = ""

    def __str__(self) -> str:
        """For error texts."""
        return f"GET {self.path} answering {self.status}"


@dataclass(frozen=True, kw_only=True)
class TcpReady:
    """Ready when the port answers the protocol: `send` is written and the reply must contain `expect`.

    An accepted connection alone proves nothing (a proxy accepts before its server listens), so `expect` is required.
    """

    expect: bytes
    send: bytes = b""
    port: int = 0

    def __post_init__(self) -> None:
        """Refuse a probe that any listener would satisfy."""
        if not self.expect:
            raise TopologyError(
                "TcpReady.expect=b'': an accepted connection is not readiness; try: bytes of the first reply"
            )

    def __str__(self) -> str:
        """For error texts."""
        return f"a TCP reply holding {self.expect!r}"


@dataclass(frozen=True, kw_only=True)
class LogReady:
    """Ready when this incarnation's log has a line that the pattern finds."""

    pattern: str

    def __str__(self) -> str:
        """For error texts."""
        return f"a log line matching {self.pattern!r}"


@dataclass(frozen=True, kw_only=True)
class CallReady:
    """Ready when the callable says so; it is asked again until the budget ends and may raise `OSError` meanwhile."""

    probe: Callable[[Place], bool]
    text: str

    def __str__(self) -> str:
        """For error texts."""
        return self.text


Ready = HttpReady | TcpReady | LogReady | CallReady


class Service(ABC):
    """How one kind of process is run. Subclass it, set the attributes that differ, and write `command`.

    | attribute     | meaning                                                                       |
    |---------------|-------------------------------------------------------------------------------|
    | `name`        | nodes are `<name>-0`, `<name>-1`, ...                                         |
    | `ports`       | how many contiguous ports each node leases                                    |
    | `listens`     | how many of them, from the first, the process itself must hold once ready     |
    | `ready`       | how to know it is ready                                                       |
    | `scheme`      | of `Node.url`: `https` for one that speaks TLS on its first port              |
    | `stop_signal` | what asks it to end gracefully                                                |
    | `exit_codes`  | what a graceful end may return (-15: SIGTERM itself); else it is an error     |
    | `after`       | services that must be ready before this one starts                            |
    | `faults`      | which faults it supports (`FAULTS` names them)                                |
    | `keeps_data`  | true: a cold restart leaves its data folder alone                             |
    """

    name: str
    ports: int = 1
    listens: int = 1
    ready: Ready = HttpReady()
    scheme: str = "http"
    stop_signal: int = signal.SIGTERM
    exit_codes: frozenset[int] = frozenset({0})
    after: tuple[str, ...] = ()
    faults: frozenset[str] = FAULTS
    keeps_data: bool = False

    @abstractmethod
    def command(self, place: Place) -> Command:
        """What to execute for the node at `place`. Called before every start, so it may depend on the incarnation."""


@dataclass(frozen=True, kw_only=True)
class ArgvService(Service):
    """A service written as data. `{name}`, `{index}`, `{host}`, `{port}`, `{port1}`, ..., `{data}` are filled in."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    ports: int = 1
    listens: int = 1
    ready: Ready = HttpReady()
    stop_signal: int = signal.SIGTERM
    exit_codes: frozenset[int] = frozenset({0})
    after: tuple[str, ...] = ()
    faults: frozenset[str] = FAULTS
    keeps_data: bool = False

    _fields: ClassVar[str] = "name, index, host, port, port1, port2, ..., data"

    def command(self, place: Place) -> Command:
        """The argument list and variables with the node's own values filled in."""
        values = {
            "name": place.name,
            "index": str(place.index),
            "host": place.host,
            "data": str(place.data_dir),
            **({"port": str(place.ports[0])} if place.ports else {}),
            **{f"port{number}": str(port) for number, port in enumerate(place.ports) if number},
        }

        def fill(text: str) -> str:
            try:
                return text.format_map(values)
            except (KeyError, IndexError, ValueError) as wrong:
                raise TopologyError(
                    f"{self.name}: {text!r}: {wrong!r} cannot be filled in; try: one of {self._fields}, and {{{{ for a brace"
                ) from wrong

        return Command(
            argv=tuple(fill(part) for part in self.argv),
            env={key: fill(value) for key, value in self.env.items()},
            cwd=place.data_dir,
        )


@dataclass(frozen=True, kw_only=True)
class Group:
    """So many nodes of one service."""

    service: Service
    count: int = 1

    @property
    def node_names(self) -> tuple[str, ...]:
        """`<service>-0` and on."""
        return tuple(f"{self.service.name}-{index}" for index in range(self.count))


@dataclass(frozen=True, kw_only=True)
class Topology:
    """A whole cluster as facts: its groups, its budgets, and how many faults at once it promises to live through."""

    groups: tuple[Group, ...]
    budgets: Mapping[str, float] = field(default_factory=dict)
    tolerates: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be started, by name."""
        names = [group.service.name for group in self.groups]
        for group in self.groups:
            _check_group(group, names)
        for name, seconds in self.budgets.items():
            if not seconds > 0:
                raise TopologyError(f"budget {name}={seconds}: must be seconds above 0; try: 30")
        if not 0 <= self.tolerates <= sum(group.count for group in self.groups):
            raise TopologyError(f"tolerates={self.tolerates}: must be from 0 to the number of nodes; try: 1")
        self.stages()

    def budget(self, name: str) -> float:
        """The seconds declared under a name; the topology's own value wins over the default."""
        try:
            return self.budgets[name] if name in self.budgets else DEFAULT_BUDGETS[name]
        except KeyError:
            known = ", ".join(sorted({*self.budgets, *DEFAULT_BUDGETS}))
            raise TopologyError(f"budget {name}: is not declared; try: one of {known}") from None

    def stages(self) -> tuple[tuple[Group, ...], ...]:
        """The groups in the order they start: those of one stage depend on earlier stages only."""
        left = list(self.groups)
        done: set[str] = set()
        stages: list[tuple[Group, ...]] = []
        while left:
            stage = tuple(group for group in left if done.issuperset(group.service.after))
            if not stage:
                ring = ", ".join(
                    f"{group.service.name} after {'+'.join(group.service.after)}" for group in left
                )
                raise TopologyError(f"services wait for each other: {ring}; try: drop one 'after'")
            stages.append(stage)
            done.update(group.service.name for group in stage)
            left = [group for group in left if group not in stage]
        return tuple(stages)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Every node, in the order the groups are written."""
        return tuple(name for group in self.groups for name in group.node_names)


def _check_group(group: Group, names: list[str]) -> None:
    service = group.service
    if not _NAME.fullmatch(service.name):
        raise TopologyError(
            f"service {service.name[:64]!r}: not a usable name; try: 1 to 48 of a-z, 0-9 and dashes, not at an end"
        )
    if names.count(service.name) > 1:
        raise TopologyError(f"service {service.name}: is there twice; try: one group with a higher count")
    if group.count < 0 or group.count > 1000:
        raise TopologyError(f"{service.name}: count={group.count}: must be from 0 to 1000; try: 1")
    if not 0 <= service.listens <= service.ports <= 1000:
        raise TopologyError(
            f"{service.name}: ports={service.ports} listens={service.listens}: "
            "must be 0 <= listens <= ports <= 1000; try: ports=1, listens=1"
        )
    for other in service.after:
        if other not in names:
            raise TopologyError(
                f"{service.name}: after={other!r}: no such service; try: one of {', '.join(names)}"
            )
    if unknown := service.faults - FAULTS:
        raise TopologyError(
            f"{service.name}: faults={', '.join(sorted(unknown))}: unknown; try: {', '.join(sorted(FAULTS))}"
        )
