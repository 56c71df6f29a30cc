"""A stream reaches what it names, or is told why not; a reused port never answers for another model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from inference_fleet.backends.manifest import read_manifests
from inference_fleet.settings.loopback import LOOPBACK
from inference_fleet.tunnel import Refusal
from inference_fleet.worker.lifecycle import Phase
from inference_fleet.worker.resolver import resolver
from inference_fleet.worker.supervisor import Supervisor

from .doubles import Home

if TYPE_CHECKING:
    from pathlib import Path


async def supervisor(tmp_path: Path, *, phase: Phase = Phase.READY) -> Supervisor:
    home = Home(tmp_path, "http://f")
    home.model("m")
    made = Supervisor(read_manifests(tmp_path / "models"), settings=home.settings())
    (model,) = made.models
    model.phase, model.port, model.process_key = phase, 20051, "m#3"
    return made


@pytest.mark.holds("B-37", "B-83")
def test_each_tag_reaches_its_own_port_on_the_one_loopback_address(tmp_path: Path) -> None:
    resolve = resolver(http_port=20050, supervisor=asyncio.run(supervisor(tmp_path)))

    assert resolve("http", "", None) == (LOOPBACK, 20050)
    assert resolve("backend", f"{LOOPBACK}:20051", "m#3") == (LOOPBACK, 20051)


@pytest.mark.holds("B-37")
@pytest.mark.parametrize(
    ("tag", "target", "key", "refusal"),
    [
        ("backend", f"{LOOPBACK}:20051", "m#2", Refusal.UNAVAILABLE),
        ("backend", f"{LOOPBACK}:20051", "other#3", Refusal.UNAVAILABLE),
        ("backend", f"{LOOPBACK}:20052", "m#3", Refusal.UNAVAILABLE),
        ("backend", f"{LOOPBACK}:20051", None, Refusal.INVALID),
        ("backend", f"{LOOPBACK}:20051", "", Refusal.INVALID),
        ("backend", "", "m#3", Refusal.INVALID),
        ("backend", "10.0.0.1:20051", "m#3", Refusal.INVALID),
        ("backend", f"{LOOPBACK}:x", "m#3", Refusal.INVALID),
        ("http", f"{LOOPBACK}:20050", None, Refusal.INVALID),
        ("files", "", None, Refusal.TAG_UNKNOWN),
    ],
)
def test_what_cannot_be_served_is_refused_by_its_rule(
    tmp_path: Path, tag: str, target: str, key: str | None, refusal: Refusal
) -> None:
    resolve = resolver(http_port=20050, supervisor=asyncio.run(supervisor(tmp_path)))

    assert resolve(tag, target, key) is refusal


@pytest.mark.holds("B-37")
def test_a_reused_port_never_answers_for_another_process(tmp_path: Path) -> None:
    resolve = resolver(http_port=20050, supervisor=asyncio.run(supervisor(tmp_path)))

    assert resolve("backend", f"{LOOPBACK}:20051", "m#3") == (LOOPBACK, 20051), "the control"
    assert resolve("backend", f"{LOOPBACK}:20051", "m#2") is Refusal.UNAVAILABLE


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.READY}))
def test_a_process_that_is_not_ready_is_unavailable(tmp_path: Path, phase: Phase) -> None:
    resolve = resolver(http_port=20050, supervisor=asyncio.run(supervisor(tmp_path, phase=phase)))

    assert resolve("backend", f"{LOOPBACK}:20051", "m#3") is Refusal.UNAVAILABLE


def test_an_agent_serves_http_and_no_backend() -> None:
    resolve = resolver(http_port=20050, supervisor=None)

    assert resolve("http", "", None) == (LOOPBACK, 20050)
    assert resolve("backend", f"{LOOPBACK}:20051", "m#3") is Refusal.UNAVAILABLE
