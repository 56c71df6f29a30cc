"""What was measured, round by round, and the ratios that follow: pure, so that a report can be checked without a run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.summary import ratios, summarise

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench.summary import Summary

RAW: Final = "raw"
CHAIN: Final = "chain"
RAW_TLS: Final = "raw-tls"
CONTROLS: Final = (RAW, RAW_TLS, CHAIN)

UNITS: Final = {
    "down": "MB/s",
    "up": "MB/s",
    "relayed-down": "MB/s",
    "relayed-up": "MB/s",
    "http": "MB/s",
    "streams": "/s",
    "relayed-streams": "/s",
    "idle-median": "ms",
    "idle-worst": "ms",
    "busy-worst": "ms",
    "busy-window": "ms",
    "relayed-busy-window": "ms",
    "relayed-idle-median": "ms",
    "relayed-idle-worst": "ms",
    "relayed-busy-worst": "ms",
    "stream-memory-frontend": "KB",
    "stream-memory-worker": "KB",
    "tunnel-memory-frontend": "KB",
    "tunnel-memory-worker": "KB",
    "http-small": "ms",
    "http-small-direct": "ms",
    "http-added": "ms",
    "idle-tunnels": "",
    "idle-chat": "ms",
}
"""Units of figures that are no ratios."""

_OVER_CONTROLS: Final = (
    ("down/raw", "down", RAW, "down"),
    ("up/raw", "up", RAW, "up"),
    ("down/chain", "down", CHAIN, "down"),
    ("up/chain", "up", CHAIN, "up"),
    ("http/raw", "http", RAW, "down"),
)
_OVER_TLS: Final = (
    ("down/raw-tls", "down", RAW_TLS, "down"),
    ("up/raw-tls", "up", RAW_TLS, "up"),
)
_OVER_OWN: Final = (
    # speeds turned round: the time of a relayed transfer over the time of a direct one
    ("relayed-down/direct", "down", "relayed-down"),
    ("relayed-up/direct", "up", "relayed-up"),
)


@dataclass
class Sheet:
    """Figures by subject (`raw`, `chain`, `takeover/plain`, ...) and CPU seconds a GB by transfer and process."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    cpu: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)

    def add(self, subject: str, figure: str, value: float) -> None:
        """One round's value."""
        self.values.setdefault(subject, defaultdict(list))[figure].append(value)

    def add_cpu(self, subject: str, figure: str, seconds_per_gb: Mapping[str, float]) -> None:
        """One round's CPU seconds a GB (10^9 bytes) by process."""
        by_process = self.cpu.setdefault(subject, {}).setdefault(figure, defaultdict(list))
        for process, seconds in seconds_per_gb.items():
            by_process[process].append(seconds)

    @property
    def subjects(self) -> list[str]:
        """In the order they were first measured, controls first."""
        return sorted(self.values, key=lambda name: (name not in CONTROLS, name))

    def figures(self, subject: str) -> dict[str, list[float]]:
        """What was measured of a subject, then what follows from it, by round."""
        own = dict(self.values[subject])
        if subject in CONTROLS:
            return own
        controls = _OVER_CONTROLS + (_OVER_TLS if subject.endswith("/tls") else ())
        return own | dict(self._derived(own, controls))

    def summaries(self, subject: str) -> dict[str, Summary]:
        """The same, summed up."""
        return {figure: summarise(values) for figure, values in self.figures(subject).items()}

    def medians(self, subject: str) -> dict[str, float]:
        """The middle of each figure."""
        return {figure: summary.median for figure, summary in self.summaries(subject).items()}

    def _derived(
        self, own: Mapping[str, list[float]], controls: Iterable[tuple[str, str, str, str]]
    ) -> Iterable[tuple[str, list[float]]]:
        for name, figure, control, of_control in controls:
            beside = self.values.get(control, {}).get(of_control)
            if figure in own and beside is not None:
                yield name, ratios(own[figure], beside)
        for name, figure, relayed in _OVER_OWN:
            if figure in own and relayed in own:
                yield name, ratios(own[figure], own[relayed])
