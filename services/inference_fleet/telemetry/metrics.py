"""The process's Prometheus metrics: one registry a process, every label from a closed set."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one process; made once by the app factory and handed to whoever counts."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self.dials = Counter(
            "blackstart_dials",
            "Attempts to open a stream to a worker, by route outcome",
            ["outcome"],
            registry=registry,
        )
        self.refusals = Counter(
            "blackstart_refusals",
            "Stream refusals received or sent, by wire code",
            ["code"],
            registry=registry,
        )
        self.relayed_bytes = Counter(
            "blackstart_relayed_bytes", "Payload bytes passed between a peer and a worker", registry=registry
        )
        self.tunnel_carrier = Gauge(
            "blackstart_tunnel_carrier",
            "Live tunnel sessions by how their bytes travel",
            ["path"],
            registry=registry,
        )
        self.stream_stalls = Counter(
            "blackstart_stream_stalls",
            "Sends over a tunnel that waited for longer than is usual, by what made them wait",
            ["side"],
            registry=registry,
        )
        self.stream_resets = Counter(
            "blackstart_stream_resets",
            "Streams that were reset, by the cause as this end knows it",
            ["cause"],
            registry=registry,
        )
        self.loop_lag = Gauge(
            "blackstart_event_loop_lag_seconds",
            "Worst delay of the event loop in the last sample",
            registry=registry,
        )
        self.reconnects = Counter(
            "blackstart_reconnects",
            "Tunnel dials of a worker, by how they ended",
            ["outcome"],
            registry=registry,
        )
        self.conflicts = Counter(
            "blackstart_tunnel_conflicts", "Claims by a second boot of a connected node", registry=registry
        )
        for path in ("asgi", "takeover"):
            self.tunnel_carrier.labels(path)
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._families: dict[str, tuple[str, str, Callable[[], Mapping[str, float]]]] = {}
        registry.register(_Live(self))
        self.observe("blackstart_tasks", "asyncio tasks alive in this process", _task_count)

    def observe(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge read at the moment of the scrape, such as `blackstart_tunnels`."""
        self._gauges[name] = (text, read)

    def observe_family(
        self, name: str, text: str, label: str, read: Callable[[], Mapping[str, float]]
    ) -> None:
        """A labelled gauge read at the moment of the scrape, such as `blackstart_presence{state}`."""
        self._families[name] = (text, label, read)

    def render(self) -> bytes:
        """The exposition text for `GET /metrics`."""
        return generate_latest(self.registry)

    def collect_live(self) -> Iterable[GaugeMetricFamily]:
        """The gauges that are read at the scrape."""
        for name, (text, read) in self._gauges.items():
            yield GaugeMetricFamily(name, text, value=read())
        for name, (text, label, read_all) in self._families.items():
            family = GaugeMetricFamily(name, text, labels=[label])
            for value, count in read_all().items():
                family.add_metric([value], count)
            yield family


class _Live(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._metrics.collect_live()

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()


def _task_count() -> float:
    try:
        return float(len(asyncio.all_tasks()))
    except RuntimeError:  # scraped from outside the loop, as unit specs do
        return 0.0
