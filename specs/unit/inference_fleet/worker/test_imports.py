"""A worker carries neither the database nor the frontends' side with it, and starts light."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .doubles import TIMINGS

FORBIDDEN = (
    "psycopg",
    "psycopg_pool",
    "inference_fleet.store",
    "inference_fleet.route",
    "inference_fleet.cluster",
    "inference_fleet.upkeep",
    "inference_fleet.frontend",
    "inference_fleet.roster.frontend",
    "inference_fleet.tunnel.frontend",
    "blackstart",
)
HEAVY = ("aiohttp", "starlette", "requests", "numpy", "pytest")


def imported_by(module: str) -> set[str]:
    """Every module that is there after importing one, in a process of its own."""
    code = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=TIMINGS.start_s
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "inference_fleet.worker.starting",
        "inference_fleet.worker.healthcheck",
        "inference_fleet.backends.babbler.service",
    ],
)
def test_nothing_of_the_database_or_the_frontends_comes_with_a_worker(module: str) -> None:
    names = imported_by(module)

    assert module in names
    assert not [
        name for name in names if name.startswith(tuple(f"{bad}." for bad in FORBIDDEN)) or name in FORBIDDEN
    ]
    assert not names & set(HEAVY)


def test_a_healthcheck_brings_neither_server_nor_tunnel() -> None:
    names = imported_by("inference_fleet.worker.__main__, inference_fleet.worker.healthcheck")

    assert "inference_fleet.worker.healthcheck" in names
    assert not {"uvicorn", "websockets", "httpx2", "asyncio", "inference_fleet.worker.running"} & names
