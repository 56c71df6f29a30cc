"""The worker as a process: what it refuses, in which order it shows itself, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import psutil
import pytest

from inference_fleet.backends.serving import listen
from inference_fleet.settings import Deadline
from inference_fleet.settings.loopback import LOOPBACK
from inference_fleet.tunnel import ResetCause, StallSide
from inference_fleet.worker.__main__ import main
from inference_fleet.worker.children import Child
from inference_fleet.worker.lifecycle import Phase

from .doubles import NODE, TIMINGS, TOKEN, Frontend, Home, error, frontend, stopped, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

DIALS = ("connected", "failed", "unauthorized", "conflict", "refused")
COMMAND = [sys.executable, "-m", "inference_fleet.worker"]


@pytest.fixture(autouse=True)
def _nothing_stays_frozen() -> Iterator[None]:
    """A `main` that is called here loads into this process, which has a life after it."""
    yield
    gc.unfreeze()


def environ(home: Home, **extra: str) -> dict[str, str]:
    return {**os.environ, **home.environ(**extra)}


@asynccontextmanager
async def working(home: Home, **extra: str) -> AsyncIterator[Child]:
    """A worker process; killed at the end if it still runs, with its output in `worker.log`."""
    with (home.root / "worker.log").open("ab") as log:
        child = Child.start(COMMAND, env=environ(home, **extra), cwd=home.root, log=log)
    try:
        yield child
    finally:
        child.kill_now()


def told(home: Home) -> str:
    return (home.root / "worker.log").read_text()


def refused(home: Home, *arguments: str, **extra: str) -> tuple[int, str]:
    """The exit status and the words of a worker that does not start."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        env=environ(home, **extra),
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMINGS.start_s,
    )
    return done.returncode, done.stderr


def ready(double: Frontend) -> bool:
    return bool(double.sessions) and any(
        model.state == "ready" for beat in double.heartbeats[-1:] for model in beat.models
    )


async def healthy(home: Home) -> int:
    """The exit status of `--healthcheck` with the worker's own settings."""
    with (home.root / "health.log").open("ab") as log:
        child = Child.start([*COMMAND, "--healthcheck"], env=environ(home), cwd=home.root, log=log)
    async with asyncio.timeout(TIMINGS.start_s):
        await child.exited()
    return 0 if child.ending == "exit status 0" else 1


@pytest.mark.holds("B-90")
def test_a_worker_without_its_tunnel_does_not_start_and_nobody_ever_hears_of_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            async with working(home, TUNNEL="false") as child:
                await until(lambda: not child.alive or double.registrations)

                assert not double.registrations, "it showed itself"
                assert child.ending == "exit status 2"
                assert "BLACKSTART_TUNNEL=false" in told(home)
                assert not (tmp_path / "data").exists(), "nothing was made"

    asyncio.run(story())


@pytest.mark.holds("B-90")
@pytest.mark.parametrize(
    ("setting", "value"),
    [("REGISTRATION_TOKEN", ""), ("FRONTEND_URLS", "ftp://x"), ("PORT_BASE", "70000"), ("NODE_NAME", "a/b")],
)
def test_a_wrong_setting_is_named_and_exits_with_2(
    tmp_path: Path, setting: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path, "http://f")

    assert main([], environ=home.environ(**{setting: value})) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"blackstart: BLACKSTART_{setting}=")
    assert "; try: " in said


def test_help_shows_the_settings_and_an_unknown_argument_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path, "http://f")
    with pytest.raises(SystemExit) as caught:
        main(["--help"], environ=home.environ())
    assert caught.value.code == 0
    assert "`NODE_CREDENTIAL_FILE`" in capsys.readouterr().out

    with pytest.raises(SystemExit) as caught:
        main(["--health"], environ=home.environ())
    assert caught.value.code == 2
    assert capsys.readouterr().err == (
        "blackstart: argument=--health: no such argument; try: python -m inference_fleet.worker --help\n"
    )


def test_a_file_where_a_folder_belongs_is_blamed_on_the_setting_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("")
    home = Home(tmp_path, "http://f")
    for setting, value in (("MODELS_DIR", file), ("DATA_DIR", file), ("DATA_DIR", file / "deeper")):
        assert main([], environ=home.environ(**{setting: str(value)})) == 2
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith(f"blackstart: BLACKSTART_{setting}={value}: must be a folder"), said
        assert "; try: " in said


def test_a_worker_settles_its_memory_before_it_starts(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    gc.unfreeze()
    assert main([], environ=Home(tmp_path, "http://f").environ(DATA_DIR=str(file))) == 2
    assert gc.get_freeze_count(), "what a worker loads is collected, and what it frees given back"


def test_a_wrong_manifest_or_credential_or_port_is_named_and_exits_with_2(tmp_path: Path) -> None:
    home = Home(tmp_path, "http://f")
    home.model("m", 'backend = "babbler"\nspeed = 3')
    status, words = refused(home)
    assert (status, "model.toml: speed=3" in words, "; try: " in words) == (2, True, True)

    (tmp_path / "models" / "m" / "model.toml").write_text('backend = "babbler"')
    (tmp_path / "credential").write_text("")
    status, words = refused(home, NODE_CREDENTIAL_FILE=str(tmp_path / "credential"))
    assert (status, f"BLACKSTART_NODE_CREDENTIAL_FILE={tmp_path}/credential: is empty" in words) == (2, True)

    with listen(LOOPBACK, home.base - 1):
        status, words = refused(home)
    assert (status, f"BLACKSTART_PORT_BASE={home.base}" in words) == (2, True)


@pytest.mark.holds("B-92", "B-93", "B-99")
def test_a_worker_registers_once_holds_a_tunnel_is_ready_by_it_and_stops_with_0(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            home.model("m")
            double.dialling.append(error(503, "starting"))
            async with working(home) as child:
                await until(lambda: ready(double))
                assert double.order[:3] == ["register", "dial", "heartbeat"], "something came before its turn"
                assert len(double.registrations) == 1
                assert await healthy(home) == 0
                credential = (tmp_path / "data" / "node-credential").read_text().strip()
                assert double.bearers[0] == f"Bearer {TOKEN}"
                assert set(double.bearers[1:]) == {f"Bearer {credential}"}
                assert double.dials[0]["authorization"] == f"Bearer {credential}"
                assert double.registrations[0].boot_id == double.dials[0]["x-blackstart-boot"]

                (model,) = double.heartbeats[-1].models
                stream = await double.stream("backend", f"{LOOPBACK}:{model.port}", model.process_key)
                stream.write(b"GET /healthz HTTP/1.1\r\nHost: m\r\nConnection: close\r\n\r\n")
                deadline = Deadline.after(TIMINGS.stream_open_s)
                assert await stream.read_exactly(12, deadline=deadline) == b"HTTP/1.1 200"
                stream.abort()

                assert await stopped(child) == "exit status 0"
                assert len(double.registrations) == 1
                assert await healthy(home) == 1
            for secret in (credential, TOKEN):
                assert secret not in told(home)

    asyncio.run(story())


@pytest.mark.holds("B-93", "B-94", "B-99")
def test_while_no_tunnel_stands_a_worker_is_not_ready_and_its_heart_beats_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            double.dialling.extend(error(503, "starting") for _ in range(200))
            async with working(home) as child:
                await until(lambda: len(double.heartbeats) >= 3 and len(double.dials) >= 3)
                assert await healthy(home) == 1
                assert "no tunnel" in (tmp_path / "health.log").read_text()
                assert child.alive

                double.dialling.clear()
                await until(lambda: double.sessions)
                assert await healthy(home) == 0, "the control"

    asyncio.run(story())


@pytest.mark.holds("B-94")
def test_a_dial_that_is_never_answered_holds_up_no_heartbeat(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            double.silent = True
            patient = str(TIMINGS.start_s / 3)
            async with working(home, TIMING_HANDSHAKE_S=patient) as child:
                await until(lambda: len(double.heartbeats) >= 2)
                assert len(double.dials) == 1, "the beats waited for the end of the dial"
                assert not double.sessions
                assert await stopped(child) == "exit status 0"

    asyncio.run(story())


@pytest.mark.holds("B-91")
def test_a_refused_worker_exits_with_1_and_the_answer_in_its_log(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            home.model("m")
            double.registering.append(error(403, "forbidden", "no such token here"))
            async with working(home) as child:
                async with asyncio.timeout(TIMINGS.start_s):
                    await child.exited()
                assert child.ending == "exit status 1"
                assert len(double.registrations) == 1
                assert "no such token here" in told(home)

    asyncio.run(story())


def test_the_credential_is_on_disk_before_the_frontends_hear_of_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            double.registering.append(error(409, "name_taken", Retry_After="1000"))
            async with working(home) as child:
                await until(lambda: double.registrations)
                assert (tmp_path / "data" / "node-credential").read_text().strip()
                assert await stopped(child) == "exit status 0", "also while it waits for its name"

    asyncio.run(story())


@pytest.mark.holds("B-83")
def test_no_process_of_a_worker_listens_on_anything_but_loopback(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            home.model("m")
            async with working(home) as child:
                await until(lambda: ready(double))
                family = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
                listening = {
                    connection.laddr
                    for process in family
                    for connection in process.net_connections(kind="inet")
                    if connection.status in {psutil.CONN_LISTEN, psutil.CONN_NONE}
                }

                assert len(family) == 2
                assert len(listening) == 2, "the control: its own server and its model's"
                assert {address.ip for address in listening} == {"127.0.0.1"}
                assert {address.port for address in listening} == {
                    home.base - 1,
                    double.heartbeats[-1].models[0].port,
                }

    asyncio.run(story())


def test_an_agent_runs_no_models_and_still_serves_its_own_http(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            home.model("m")
            async with working(home, NODE_TYPE="agent") as child:
                await until(lambda: double.sessions and double.heartbeats)
                stream = await double.stream("http")
                stream.write(b"GET /readyz HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
                deadline = Deadline.after(TIMINGS.stream_open_s)
                assert await stream.read_exactly(12, deadline=deadline) == b"HTTP/1.1 200"
                stream.abort()
                assert double.registrations[0].node_type == "agent"
                assert double.heartbeats[-1].models == []
                assert not psutil.Process(child.pid).children()

    asyncio.run(story())


def test_a_stopping_worker_lets_a_running_stream_finish_and_reads_as_not_ready(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            async with working(home) as child:
                await until(lambda: double.sessions)
                stream = await double.stream("http")
                os.kill(child.pid, signal.SIGTERM)
                await until(lambda: not double.sessions[0].connected)
                stream.write(b"GET /readyz HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
                deadline = Deadline.after(TIMINGS.stream_open_s)
                assert await stream.read_exactly(12, deadline=deadline) == b"HTTP/1.1 503"
                stream.abort()
                async with asyncio.timeout(TIMINGS.shutdown_s):
                    await child.exited()
                assert child.ending == "exit status 0"

    asyncio.run(story())


def test_a_worker_killed_outright_leaves_no_model_process(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            home.model("m")
            async with working(home) as child:
                await until(lambda: ready(double))
                (model,) = psutil.Process(child.pid).children()
                assert model.is_running()
                os.kill(child.pid, signal.SIGKILL)
                await until(lambda: not model.is_running(), within_s=TIMINGS.backend_stop_s)

    asyncio.run(story())


def test_a_second_start_is_the_same_node_with_another_boot(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            for round_number in (1, 2):
                async with working(home) as child:
                    await until(lambda: len(double.sessions) == round_number)  # noqa: B023 - awaited in this round
                    await stopped(child)
            first, second = double.registrations

            assert first.credential_sha256 == second.credential_sha256
            assert first.boot_id != second.boot_id
            assert [dial["x-blackstart-seen-epoch"] for dial in double.dials] == ["0", "1"]

    asyncio.run(story())


async def page(home: Home) -> str:
    """What the worker's own `/metrics` says; empty while it does not answer yet."""
    async with httpx2.AsyncClient(trust_env=False, timeout=TIMINGS.backend_probe_s) as client:
        try:
            return (await client.get(f"http://{LOOPBACK}:{home.base - 1}/metrics")).text
        except httpx2.TransportError:
            return ""


async def shown(home: Home, line: str) -> str:
    """The worker's `/metrics`, once it has the line; the limit is only what a hung spec costs."""
    async with asyncio.timeout(TIMINGS.backend_start_s):
        while line not in (seen := await page(home)):  # noqa: ASYNC110 - what is awaited happens in another process
            await asyncio.sleep(TIMINGS.backend_poll_s)
    return seen


def test_every_label_of_a_workers_page_is_there_before_it_reached_any_frontend(tmp_path: Path) -> None:
    async def story() -> None:
        home = Home(tmp_path, f"http://{LOOPBACK}:1")
        async with working(home):
            seen = await shown(home, "blackstart_tunnels 0.0")
        for name, values in (
            ('reconnects_total{outcome="%s"}', DIALS),
            ('stream_resets_total{cause="%s"}', ResetCause),
            ('stream_stalls_total{side="%s"}', StallSide),
            ('models{phase="%s"}', Phase),
        ):
            for value in values:
                assert f"blackstart_{name % value} 0.0" in seen, f"{value} is not there from the start"

    asyncio.run(story())


def test_a_worker_tells_its_open_streams_while_they_run(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            async with working(home):
                await until(lambda: double.sessions)
                assert "blackstart_streams_open 0.0" in await page(home)
                stream = await double.stream("http")
                assert "blackstart_streams_open 1.0" in await page(home), "a stream that runs is not told"
                stream.abort()
                await shown(home, "blackstart_streams_open 0.0")

    asyncio.run(story())


def test_its_own_pages_are_reached_on_loopback(tmp_path: Path) -> None:
    async def story() -> None:
        async with frontend() as double:
            home = Home(tmp_path, double.url)
            async with working(home):
                await until(lambda: double.sessions)
                said = await page(home)
                assert "blackstart_tunnels 1.0" in said
                assert 'blackstart_reconnects_total{outcome="connected"} 1.0' in said
                assert "blackstart_tasks " in said
                assert NODE in told(home)

    asyncio.run(story())
