"""A refusal is a verdict and ends the worker at once; a taken name waits; everything else is asked again."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from starlette.responses import PlainTextResponse

from inference_fleet.roster.wire import Registered, Registration
from inference_fleet.worker.frontends import Frontends, Rotation
from inference_fleet.worker.registration import (
    RegistrationRejected,
    Verdict,
    name_taken_pause_s,
    register,
    verdict,
)

from .doubles import TIMINGS, TOKEN, Frontend, Home, error, frontend

if TYPE_CHECKING:
    from pathlib import Path

    from inference_fleet.settings import Timings

REGISTRATION = Registration(name="w0", node_type="backend", boot_id="boot-0001", credential_sha256="ab" * 32)


async def registered(home: Home, *urls: str, timings: Timings = TIMINGS) -> Registered:
    async with Frontends.connect(home.settings()) as frontends:
        rotation = Rotation(urls or (home.url,), node_name="w0")
        async with asyncio.timeout(TIMINGS.backend_start_s):
            return await register(
                frontends, rotation, REGISTRATION, token=TOKEN, timings=timings, draw=lambda: 0.0
            )


@pytest.mark.holds("B-91")
@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (201, "", Verdict.KNOWN),
        (200, "", Verdict.KNOWN),
        (400, "invalid", Verdict.REJECTED),
        (401, "unauthorized", Verdict.REJECTED),
        (403, "forbidden", Verdict.REJECTED),
        (404, "", Verdict.REJECTED),
        (409, "something_else", Verdict.REJECTED),
        (409, "name_taken", Verdict.NAME_TAKEN),
        (408, "", Verdict.NOTHING),
        (429, "rate_limited", Verdict.NOTHING),
        (500, "", Verdict.NOTHING),
        (503, "", Verdict.NOTHING),
        (302, "", Verdict.NOTHING),
    ],
)
def test_what_each_answer_means(status: int, code: str, expected: Verdict) -> None:
    assert verdict(status, code) is expected


@pytest.mark.holds("B-91")
def test_a_refusal_quotes_the_answer_and_is_not_asked_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            double.registering.append(error(403, "forbidden", f"the token {TOKEN} is not accepted"))
            with pytest.raises(RegistrationRejected) as caught:
                await registered(Home(tmp_path, double.url))

            told = str(caught.value)
            assert "HTTP 403" in told
            assert "is not accepted" in told
            assert TOKEN not in told
            assert len(double.registrations) == 1

    asyncio.run(story())


@pytest.mark.holds("B-91")
@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_an_answer_that_says_nothing_about_the_worker_is_asked_again(tmp_path: Path, status: int) -> None:
    async def story() -> None:
        async with frontend() as double:
            double.registering.append(PlainTextResponse("busy", status))
            assert (await registered(Home(tmp_path, double.url))).name == "w0"
            assert len(double.registrations) == 2

    asyncio.run(story())


def test_a_taken_name_waits_as_long_as_it_is_told_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(double: Frontend) -> float:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await registered(Home(tmp_path, double.url))
        return loop.time() - begun

    async def both() -> None:
        async with frontend() as double:
            double.registering.append(error(409, "name_taken", "held by node-9", Retry_After="0.5"))
            assert await story(double) >= 0.5
            assert len(double.registrations) == 2

    asyncio.run(both())
    assert "the name w0 is held by another worker; asking again in 0.5 s" in caplog.text
    assert "held by node-9" in caplog.text


def test_a_wait_for_a_name_is_bounded_both_ways() -> None:
    longest = TIMINGS.heartbeat_stale_s + TIMINGS.registration_backoff_max_s

    assert name_taken_pause_s(0.0, TIMINGS) == TIMINGS.registration_backoff_min_s
    assert name_taken_pause_s(1e9, TIMINGS) == longest
    assert name_taken_pause_s(None, TIMINGS) == TIMINGS.registration_backoff_max_s
    assert name_taken_pause_s(1.5, TIMINGS) == 1.5


def test_an_address_that_does_not_answer_is_left_for_the_next(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            dead = "http://127.0.0.1:1"
            home = Home(tmp_path, double.url)
            assert (await registered(home, dead, double.url)).name == "w0"
            assert (await registered(home, double.url, dead)).name == "w0"
            assert len(double.registrations) == 2

    asyncio.run(story())


@pytest.mark.holds("B-84")
def test_a_registration_states_no_address(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            await registered(Home(tmp_path, double.url), timings=replace(TIMINGS))
            (seen,) = double.registrations
            (body,) = double.bodies
            told = set(json.loads(body))
            assert {"name", "boot_id", "credential_sha256"} <= told, "the control: this is a registration"
            assert told <= {"name", "node_type", "boot_id", "credential_sha256", "capacity", "labels"}, (
                f"more is told than who registers: {sorted(told)}"
            )
            assert seen.capacity == {}
            assert seen.labels == {}

    asyncio.run(story())
