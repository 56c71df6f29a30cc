"""How each row is measured: what the clients are told to do, and which figures come of it."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from bench.machine import cpu_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bench.remote import Remote
    from bench.sheet import Sheet
    from bench.sizes import Sizes
    from bench.stage import Path, Stage
    from bench.stands import Direction, Stand

_GB = 1e9
_KB = 1024


class NothingSeen(AssertionError):
    """A measurement during which nothing was measured."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One row of one subject, once a round."""

    subject: str
    row: str
    run: Callable[[], None]

    def __str__(self) -> str:
        """As progress is told."""
        return f"{self.subject} {self.row}"


class Measures:
    """Measures on a stage and writes into a sheet."""

    def __init__(self, stage: Stage, sheet: Sheet, sizes: Sizes) -> None:
        self._stage = stage
        self._sheet = sheet
        self._sizes = sizes

    def transfer(self, subject: str, figure: str, path: Path, direction: Direction) -> None:
        """MB a second and CPU seconds a GB of one transfer, after one whose every byte was checked."""
        sizes = self._sizes
        what: dict[str, Any] = {"port": path.port, "direction": direction, "cert": path.cert}
        self._load("transfer", **what, size=sizes.hashed, hashed=True)
        with _CpuOf(path.pids) as cpu:
            seen = self._load("transfer", **what, size=sizes.bulk, hashed=False)
        self._add_transfer(subject, figure, seen, cpu)

    def web(self, subject: str, figure: str, path: Path, *, model: str, key: str) -> None:
        """The same of one large HTTP answer."""
        sizes = self._sizes
        what: dict[str, Any] = {"port": path.port, "model": model, "key": key}
        self._load("web_transfer", **what, size=sizes.hashed, hashed=True)
        with _CpuOf(path.pids) as cpu:
            seen = self._load("web_transfer", **what, size=sizes.bulk, hashed=False)
        self._add_transfer(subject, figure, seen, cpu)

    def web_small(self, subject: str, *, port: int, direct_port: int, model: str, key: str) -> None:
        """The middle of small HTTP requests through a replica, of those to the backend itself, and the difference."""
        middle = {}
        for name, of_port in (("http-small-direct", direct_port), ("http-small", port)):
            seen = self._load("web_probe", port=of_port, model=model, key=key, count=self._sizes.probes)
            middle[name] = statistics.median(seen) * 1000
            self._sheet.add(subject, name, middle[name])
        self._sheet.add(subject, "http-added", middle["http-small"] - middle["http-small-direct"])

    def latency(self, subject: str, prefix: str, path: Path) -> None:
        """Small requests one after another, first with nothing else going on, then during one bulk download.

        The first are the control of the second: the same load with nothing to move.
        """
        stage, sizes = self._stage, self._sizes
        idle = [end - began for began, end in self._load("probe", port=path.port, count=sizes.probes)]
        prober, mover = stage.client(0), stage.client(1)
        within = stage.patience_s
        prober.call("probe_on", patience_s=within, **self._patient(port=path.port))
        try:
            moved = mover.call(
                "transfer",
                patience_s=within,
                **self._patient(port=path.port, direction="down", size=sizes.bulk, hashed=False),
            )
        finally:
            seen = prober.call("probe_off", patience_s=within, **self._patient())
        busy = [ended - began for began, ended in seen if ended >= moved["began"] and began <= moved["ended"]]
        if not busy:
            raise NothingSeen(
                f"{subject} {prefix}latency: no small request fell into the transfer; try: a larger --size-mib"
            )
        middle = statistics.median(idle)
        for name, value in (
            ("idle-median", middle * 1000),
            ("idle-worst", max(idle) * 1000),
            ("busy-worst", max(busy) * 1000),
            ("busy-count", len(busy)),
            ("busy-window", (moved["ended"] - moved["began"]) * 1000),
            ("latency", max(busy) / middle),
        ):
            self._sheet.add(subject, prefix + name, value)

    def streams(self, subject: str, figure: str, path: Path) -> None:
        """New connections a second, each with one echo."""
        sizes = self._sizes
        seen = self._load("churn", port=path.port, count=sizes.streams, at_once=sizes.at_once)
        self._sheet.add(subject, figure, sizes.streams / seen["seconds"])

    def memory(self, stand: Stand) -> None:
        """What so many more idle tunnels, and then idle streams in them, add to both processes."""
        stage, sizes = self._stage, self._sizes
        frontend, worker = stage.control("memory", stand), stage.crowd(stand)
        within = stage.patience_s
        before = _settled(frontend, worker, within=within)
        nodes = worker.call("dial", patience_s=within, count=sizes.tunnels)
        tunnels = _settled(frontend, worker, within=within)
        frontend.call("hold", patience_s=within, nodes=nodes, each=sizes.held_each, port=stage.raw().port)
        streams = _settled(frontend, worker, within=within)
        standing = worker.call("standing", patience_s=within)
        if (
            standing["tunnels"] % sizes.tunnels
            or standing["streams"] != standing["tunnels"] * sizes.held_each
        ):
            raise NothingSeen(f"{stand.name} memory: not everything is idle and there: {standing}")
        for side in ("frontend", "worker"):
            add = self._sheet.add
            add(stand.name, f"tunnel-memory-{side}", (tunnels[side] - before[side]) / sizes.tunnels / _KB)
            held = sizes.tunnels * sizes.held_each
            add(stand.name, f"stream-memory-{side}", (streams[side] - tunnels[side]) / held / _KB)

    def idle(self, stand: Stand, *, crowds: int, key: str) -> None:
        """What thousands of idle tunnels add to a side each, and how long a chat takes on the replica that holds them."""
        stage, sizes = self._stage, self._sizes
        within = stage.patience_s
        frontend, crowd = stage.control("memory", stand), [stage.crowd(stand, at) for at in range(crowds)]
        before = [_settled(frontend, each, within=within) for each in crowd]
        nodes: list[str] = []
        for begun in range(0, sizes.idle_tunnels, sizes.tunnels):
            nodes += crowd[begun // sizes.tunnels % crowds].call(
                "dial", patience_s=within, count=sizes.tunnels
            )
        after = [_settled(frontend, each, within=within) for each in crowd]
        standing = sum(each.call("standing", patience_s=within)["tunnels"] for each in crowd)
        if standing != len(nodes):
            raise NothingSeen(f"{stand.name} idle: of {len(nodes)} tunnels only {standing} stand")
        added = {
            "frontend": after[-1]["frontend"] - before[0]["frontend"],
            "worker": sum(
                late["worker"] - early["worker"] for late, early in zip(after, before, strict=True)
            ),
        }
        add = self._sheet.add
        add(stand.name, "idle-tunnels", standing)
        for side, size in added.items():
            add(stand.name, f"tunnel-memory-{side}", size / standing / _KB)
        some = nodes[:: max(1, len(nodes) // sizes.tunnels)]
        frontend.call("hold", patience_s=within, nodes=some, each=1, port=stage.raw().port)
        seen = self._load(
            "web_probe", port=stage.idle_port(stand), model=stand.model, key=key, count=sizes.probes
        )
        add(stand.name, "idle-chat", statistics.median(seen) * 1000)

    def _add_transfer(self, subject: str, figure: str, seen: Mapping[str, float], cpu: _CpuOf) -> None:
        size = self._sizes.bulk
        self._sheet.add(subject, figure, size / (seen["ended"] - seen["began"]) / 1e6)
        self._sheet.add_cpu(subject, figure, {name: used * _GB / size for name, used in cpu.used.items()})

    def _load(self, what: str, **arguments: Any) -> Any:
        """Have the first client do something; it gives up before we do."""
        client = self._stage.client(0)
        return client.call(what, patience_s=self._stage.patience_s, **self._patient(**arguments))

    def _patient(self, **arguments: Any) -> dict[str, Any]:
        """Arguments of a call whose own waits end first: a stall is told by who sees it."""
        return {"within": self._stage.timings.splice_stall_s, **arguments}


class _CpuOf:
    """What processes use while the block runs, by name."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self.used: dict[str, float] = {}
        self._pids = pids

    def __enter__(self) -> Self:
        self._before = {name: cpu_seconds(pid) for name, pid in self._pids.items()}
        return self

    def __exit__(self, *_: object) -> None:
        self.used = {name: cpu_seconds(pid) - self._before[name] for name, pid in self._pids.items()}


def _settled(frontend: Remote, worker: Remote, *, within: float) -> dict[str, int]:
    return {
        "frontend": int(frontend.call("settle", patience_s=within)),
        "worker": int(worker.call("settle", patience_s=within)),
    }
