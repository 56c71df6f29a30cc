"""The heartbeat goes on whatever the tunnel does, tells changes at once, and never registers."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from inference_fleet.roster.wire import ModelReport
from inference_fleet.worker import heartbeat
from inference_fleet.worker.frontends import Frontends, Rotation
from inference_fleet.worker.heartbeat import Identity, beat

from .doubles import NODE, TIMINGS, Frontend, Home, error, frontend, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from inference_fleet.settings import Timings

OFTEN = replace(TIMINGS, heartbeat_s=TIMINGS.heartbeat_s / 5)
"""For what needs some beats and no haste between them."""
IDENTITY = Identity(node_id=NODE, boot_id="boot-0001", credential="cd" * 32)


@asynccontextmanager
async def beating(
    tmp_path: Path,
    *urls: str,
    reports: list[ModelReport] | None = None,
    changed: asyncio.Event | None = None,
    timings: Timings = OFTEN,
) -> AsyncIterator[None]:
    async with (
        Frontends.connect(Home(tmp_path, urls[0]).settings()) as frontends,
        asyncio.TaskGroup() as group,
    ):
        task = group.create_task(
            beat(
                frontends,
                Rotation(urls, node_name="w0"),
                identity=IDENTITY,
                reports=lambda: list(reports or ()),
                changed=changed or asyncio.Event(),
                timings=timings,
            )
        )
        yield
        task.cancel()


@pytest.mark.holds("B-94")
def test_the_heartbeat_is_given_nothing_through_which_it_could_see_a_tunnel() -> None:
    given = inspect.signature(beat).parameters

    assert set(given) == {"frontends", "rotation", "identity", "reports", "changed", "timings"}
    assert "tunnel" not in inspect.getsource(heartbeat).split('"""', 2)[2].lower()


def test_beats_come_at_their_interval_with_the_nodes_own_credential(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double, beating(tmp_path, double.url):
            loop = asyncio.get_running_loop()
            await until(lambda: double.heartbeats)
            begun = loop.time()
            await until(lambda: len(double.heartbeats) >= 3)

            assert loop.time() - begun > OFTEN.heartbeat_s
            assert set(double.bearers) == {f"Bearer {IDENTITY.credential}"}

    asyncio.run(story())


def test_a_change_is_told_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        reports: list[ModelReport] = []
        changed = asyncio.Event()
        async with (
            frontend() as double,
            beating(tmp_path, double.url, reports=reports, changed=changed, timings=TIMINGS),
        ):
            await until(lambda: double.heartbeats)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            reports.append(ModelReport(name="m", port=20051, process_key="m#1", state="ready"))
            changed.set()
            await until(lambda: double.heartbeats[-1].models)

            assert loop.time() - begun < TIMINGS.heartbeat_s

    asyncio.run(story())


@pytest.mark.holds("B-95")
@pytest.mark.parametrize("status", [401, 403, 404, 409])
def test_a_refused_beat_is_named_once_and_beaten_again_and_nothing_registers(
    tmp_path: Path, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> Frontend:
        async with frontend() as double:
            double.beating.extend(error(status, "refused") for _ in range(2))
            async with beating(tmp_path, double.url):
                await until(lambda: len(double.heartbeats) >= 3)
            return double

    double = asyncio.run(story())

    assert not double.registrations
    said = [record.message for record in caplog.records if f"HTTP {status}" in record.message]
    assert len(said) == 1
    assert any(word in said[0] for word in ("credential", "roster", "boot"))


def test_an_address_that_does_not_answer_is_left_for_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double, beating(tmp_path, "http://127.0.0.1:1", double.url):
            await until(lambda: len(double.heartbeats) >= 2)
        async with frontend() as double, beating(tmp_path, double.url, "http://127.0.0.1:1"):
            await until(lambda: len(double.heartbeats) >= 2)

    asyncio.run(story())
