"""Readiness follows the tunnel and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from inference_fleet.telemetry.metrics import Metrics
from inference_fleet.worker.app import App, Readiness


@dataclass
class Tunnel:
    """All that readiness may see of one."""

    connected: bool
    why_not: str = "the frontend hung up"


async def answered(readiness: Readiness, path: str, method: str = "GET") -> tuple[int, bytes]:
    sent: list[Any] = []

    async def send(event: Any) -> None:
        sent.append(event)

    async def receive() -> Any:
        raise AssertionError("no page reads a body")

    await App(readiness=readiness, metrics=Metrics())({"method": method, "path": path}, receive, send)
    return sent[0]["status"], b"".join(event.get("body", b"") for event in sent)


@pytest.mark.holds("B-93")
def test_readyz_is_the_tunnel_and_names_what_is_missing() -> None:
    readiness = Readiness()
    for tunnel, stopping, status, words in [
        (None, False, 503, "not registered yet"),
        (Tunnel(connected=False), False, 503, "no tunnel: the frontend hung up"),
        (Tunnel(connected=True), False, 200, "ready"),
        (Tunnel(connected=True), True, 503, "stopping"),
    ]:
        readiness.tunnel, readiness.stopping = tunnel, stopping
        got, body = asyncio.run(answered(readiness, "/readyz"))

        assert got == status
        assert words in body.decode()
        if status == 503:
            assert msgspec.json.decode(body)["error"]["code"] == "not_ready"


def test_healthz_answers_without_a_tunnel_and_metrics_count_tasks() -> None:
    assert asyncio.run(answered(Readiness(), "/healthz"))[0] == 200
    status, body = asyncio.run(answered(Readiness(), "/metrics"))
    assert status == 200
    assert b"blackstart_tasks 1.0" in body


def test_other_pages_and_methods_are_refused_in_words() -> None:
    assert asyncio.run(answered(Readiness(), "/x"))[0] == 404
    assert asyncio.run(answered(Readiness(), "/healthz", "POST"))[0] == 405
