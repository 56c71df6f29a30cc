"""What a process says about itself in numbers: a replica's metrics and a model process's counters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from blackstart.fleet.http import client_of, json_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Scrape:
    """The samples of one `GET /metrics`, by name and labels."""

    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, **labels: str) -> float:
        """One sample; a name that is not there is an error, since a renamed metric must not read as zero."""
        try:
            return self.samples[name, frozenset(labels.items())]
        except KeyError:
            there = sorted({key[0] for key in self.samples})
            raise LookupError(
                f"metric {name}{labels or ''}: is not there; there are {', '.join(there)}"
            ) from None

    def total(self, name: str, **labels: str) -> float:
        """The sum of the samples of a name that carry these labels; 0 when none does, for counters not yet made."""
        wanted = frozenset(labels.items())
        return sum(value for (own, have), value in self.samples.items() if own == name and wanted <= have)


def scrape(base_url: str, *, within: float) -> Scrape:
    """`GET /metrics` of one process."""
    with client_of(base_url, within=within) as client:
        answer = client.get("/metrics")
    answer.raise_for_status()
    return Scrape(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(answer.text)
            for sample in family.samples
        }
    )


@dataclass(frozen=True)
class BackendStats:
    """A model process's own count of its generations."""

    active: int
    started: int
    finished: int
    tokens: int

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> BackendStats:
        """From the body of `GET /stats`; a key that is missing is an error."""
        return cls(
            active=body["active"], started=body["started"], finished=body["finished"], tokens=body["tokens"]
        )


def read_stats(port: int, *, within: float) -> BackendStats:
    """`GET /stats` on a worker's loopback. Only the harness, on the same machine, may do this."""
    with client_of(f"http://127.0.0.1:{port}", within=within) as client:
        return BackendStats.of(json_of(client.get("/stats"), 200))
