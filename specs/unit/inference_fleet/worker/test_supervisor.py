"""Models are kept running, each process under a key of its own, and nothing is left behind."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import psutil
import pytest

from inference_fleet.backends.manifest import read_manifests
from inference_fleet.backends.serving import listen
from inference_fleet.settings.loopback import LOOPBACK
from inference_fleet.worker.lifecycle import Phase
from inference_fleet.worker.logfiles import LogFolder
from inference_fleet.worker.probe import status_of
from inference_fleet.worker.supervisor import Supervisor

from .doubles import TIMINGS, Home, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

EXAMPLE = Path(__file__).parents[4] / "examples" / "models" / "echo"
# a server nobody here wrote for this: the standard library's, answering any GET with a folder listing
STDLIB = """
    backend = "command"
    command = ["{python}", "-m", "http.server", "--bind", "127.0.0.1", "{port}"]
    ready_path = "/"
"""
# exits at once
CRASHING = """
    backend = "command"
    command = ["sh", "-c", "echo last words of {port}; exit 7"]
"""


@asynccontextmanager
async def supervised(home: Home, **settings: str) -> AsyncIterator[Supervisor]:
    supervisor = Supervisor(
        read_manifests(home.root / "models"), settings=home.settings(**settings), draw=lambda: 0.0
    )
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor
    finally:
        supervisor.stop()
        await running


_others: set[int] = set()


@pytest.fixture(autouse=True)
def _only_what_this_spec_starts() -> None:
    """The process that runs the specs may have children of its own, such as the run's database server."""
    _others.clear()
    _others.update(child.pid for child in psutil.Process().children())


def children() -> set[int]:
    own = [child for child in psutil.Process().children() if child.pid not in _others]
    return {child.pid for top in own for child in (top, *top.children(recursive=True))}


def test_a_babbler_and_somebody_elses_server_become_ready_side_by_side_and_end_together(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        before = children()
        home = Home(tmp_path, "http://f")
        home.model("ours")
        home.model("theirs", STDLIB)
        async with supervised(home) as supervisor:
            await until(lambda: supervisor.count(Phase.READY) == 2)
            ours, theirs = supervisor.reports()

            assert (ours.name, theirs.name) == ("ours", "theirs")
            assert {ours.state, theirs.state} == {"ready"}
            assert ours.port != theirs.port
            assert {ours.port, theirs.port} <= set(range(home.base, home.base + 9))
            assert supervisor.serves(ours.port, ours.process_key)
            assert not supervisor.serves(ours.port, theirs.process_key)
            assert await status_of(theirs.port, "/", within_s=TIMINGS.backend_probe_s) == 200
        assert children() == before
        assert supervisor.reports() == []

    asyncio.run(story())


def test_the_example_of_another_server_answers_a_chat(tmp_path: Path) -> None:
    async def story() -> None:
        home = Home(tmp_path, "http://f")
        shutil.copytree(EXAMPLE, tmp_path / "models" / "echo")
        async with supervised(home) as supervisor:
            await until(lambda: supervisor.count(Phase.READY) == 1)
            (report,) = supervisor.reports()
            body = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
            async with httpx2.AsyncClient(trust_env=False, timeout=TIMINGS.request_s) as client:
                answer = await client.post(f"http://{LOOPBACK}:{report.port}/v1/chat/completions", json=body)

            assert answer.json()["choices"][0]["message"]["content"] == "hello"

    asyncio.run(story())


def test_a_babbler_started_as_a_command_serves_like_any_other(tmp_path: Path) -> None:
    async def story() -> None:
        home = Home(tmp_path, "http://f")
        home.model(
            "m",
            """
            backend = "command"
            command = ["{python}", "-m", "inference_fleet.backends.babbler", "serve", "--name", "{name}",
                       "--port", "{port}", "--data-dir", "{data_dir}", "--tokens-per-second", "{tokens_per_second}"]
            tokens_per_second = 30
            """,
        )
        async with supervised(home) as supervisor:
            await until(lambda: supervisor.count(Phase.READY) == 1)
            assert list((tmp_path / "data" / "models" / "m").glob("babbler-*.model"))

    asyncio.run(story())


def test_a_killed_process_comes_back_under_another_key_and_its_output_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        home = Home(tmp_path, "http://f")
        home.model("m")
        async with supervised(home) as supervisor:
            await until(lambda: supervisor.count(Phase.READY) == 1)
            (first,) = supervisor.reports()
            (pid,) = children()
            os.kill(pid, signal.SIGKILL)
            await until(lambda: not supervisor.serves(first.port, first.process_key))
            await until(lambda: supervisor.count(Phase.READY) == 1)
            (second,) = supervisor.reports()

            assert second.process_key == "m#2" != first.process_key
            assert second.port != first.port, "a port just left is the last to be given again"
            assert len(list((tmp_path / "data" / "logs").iterdir())) == 2

    asyncio.run(story())


def test_keys_are_not_used_again_by_the_next_worker_or_by_another_model(tmp_path: Path) -> None:
    async def story() -> None:
        home = Home(tmp_path, "http://f")
        home.model("a")
        home.model("b")
        keys: list[str] = []
        for _ in range(2):
            async with supervised(home) as supervisor:
                await until(lambda: supervisor.count(Phase.READY) == 2)
                keys += [report.process_key for report in supervisor.reports()]

        numbers = [key.rpartition("#")[2] for key in keys]
        assert len(set(numbers)) == len(numbers) == 4

    asyncio.run(story())


def test_a_crash_loop_slows_down_and_says_the_last_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        home = Home(tmp_path, "http://f")
        home.model("m", CRASHING)
        async with supervised(home) as supervisor:
            (model,) = supervisor.models
            await until(lambda: model.ladder.rungs >= 3)
            assert [report.state for report in supervisor.reports()] in (["failed"], ["starting"])

    with caplog.at_level("INFO"):
        asyncio.run(story())

    assert "exit status 7; its last words:\nlast words of" in caplog.text
    assert "(rung 1)" in caplog.text
    assert f"next start in {TIMINGS.backend_restart_min_s * 4:.2f} s (rung 3)" in caplog.text


def test_a_model_that_never_answers_is_ended_and_started_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        home = Home(tmp_path, "http://f")
        home.model("m", 'backend = "command"\ncommand = ["sleep", "1000", "{port}"]')
        (home.root / "models" / "m" / "model.toml").write_text(
            'backend = "command"\ncommand = ["sh", "-c", "sleep 1000; : {port}"]'
        )
        async with supervised(home, TIMING_BACKEND_START_S="0.2") as supervisor:
            (model,) = supervisor.models
            await until(lambda: model.ladder.rungs >= 2)

    asyncio.run(story())
    assert "no 2xx from /v1/models within backend_start_s (0.2 s)" in caplog.text
    assert not children(), "also what the command itself had started"


def test_a_process_that_hangs_is_replaced_and_one_that_only_serves_slowly_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        home = Home(tmp_path, "http://f")
        for name in ("hung", "slow"):
            home.model(name)
        quick = {"TIMING_BACKEND_SILENT_S": "1", "TIMING_BACKEND_STOP_S": "0.2"}
        async with supervised(home, **quick) as supervisor:
            await until(lambda: supervisor.count(Phase.READY) == 2)
            models = {model.name: model for model in supervisor.models}
            hung, slow = models["hung"], models["slow"]
            before = {name: (model.port, model.process_key) for name, model in models.items()}
            for port, _ in before.values():
                _process_on(port).suspend()

            def replaced() -> bool:
                supervisor.heard((LOOPBACK, slow.port))  # a stream still has bytes from it
                return hung.process_key != before["hung"][1] and hung.phase is Phase.READY

            await until(replaced)
            assert (slow.port, slow.process_key) == before["slow"], "a process that serves was ended"
            assert supervisor.serves(*before["slow"])

    asyncio.run(story())
    assert "hung#" in caplog.text
    assert "nothing came from it for backend_silent_s (1 s)" in caplog.text


def _process_on(port: int) -> psutil.Process:
    (found,) = (process for process in map(psutil.Process, children()) if str(port) in process.cmdline())
    return found


@pytest.mark.parametrize("broken", ["oversized", "cut"])
def test_a_log_that_cannot_be_measured_or_cut_ends_no_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(LogFolder, "oversized", lambda *_: True)
    monkeypatch.setattr(LogFolder, broken, full)

    async def story() -> None:
        home = Home(tmp_path, "http://f")
        home.model("m")
        async with supervised(home, TIMING_HEARTBEAT_S="0.05") as supervisor:
            (model,) = supervisor.models
            (outcome,) = await asyncio.gather(supervisor._bound_log(model, 1), return_exceptions=True)
            assert outcome is None, "a file that cannot be bounded ends the models"
            await until(lambda: "could not be cut" in caplog.text)
            await until(lambda: supervisor.count(Phase.READY) == 1)

    asyncio.run(story())


def test_a_stranger_who_answers_on_the_port_is_not_taken_for_the_model(tmp_path: Path) -> None:
    """The port is taken between the look and the child's own listening, by somebody who answers 200."""

    async def story() -> None:
        home = Home(tmp_path, "http://f")
        # never listens itself
        home.model(
            "m", 'backend = "command"\ncommand = ["sh", "-c", "exec sleep 1000 # {port}"]\nready_path = "/"'
        )
        async with supervised(home) as supervisor:
            (model,) = supervisor.models
            await until(lambda: model.phase is Phase.STARTING and model.port)
            async with _answering(model.port) as hits:
                await until(lambda: hits() >= 3 or model.phase is Phase.READY)
                assert model.phase is Phase.STARTING

    asyncio.run(story())


@asynccontextmanager
async def _answering(port: int) -> AsyncIterator[Callable[[], int]]:
    count = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal count
        await reader.readline()
        count += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    process = await asyncio.start_server(answer, LOOPBACK, port)
    try:
        yield lambda: count
    finally:
        process.close()
        await process.wait_closed()


@pytest.mark.holds("B-86", "B-100")
def test_no_free_port_is_named_and_the_model_starts_once_there_is_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        home = Home(tmp_path, "http://f")
        home.model("m")
        stranger = listen(LOOPBACK, home.base)
        async with supervised(home, PORT_MAX=str(home.base)) as supervisor:
            (model,) = supervisor.models
            await until(lambda: model.ladder.rungs >= 1)
            assert supervisor.reports() == [], "there is no process to tell of"
            stranger.close()
            await until(lambda: model.phase is Phase.READY)

    asyncio.run(story())
    assert "BLACKSTART_PORT_MAX" in caplog.text


def test_a_process_that_ignores_sigterm_is_killed_in_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn = (
        "import signal, sys, http.server as h; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "h.HTTPServer(('127.0.0.1', int(sys.argv[1])), h.SimpleHTTPRequestHandler).serve_forever()"
    )

    async def story() -> float:
        home = Home(tmp_path, "http://f")
        home.model(
            "m",
            f'backend = "command"\ncommand = ["{sys.executable}", "-c", "{stubborn}", "{{port}}"]\nready_path = "/"',
        )
        loop = asyncio.get_running_loop()
        async with supervised(home, TIMING_BACKEND_STOP_S="0.3") as supervisor:
            await until(lambda: supervisor.count(Phase.READY) == 1)
            begun = loop.time()
        return loop.time() - begun

    assert asyncio.run(story()) < TIMINGS.backend_start_s
    assert "SIGTERM was not enough" in caplog.text
    assert not children()


def test_cancelling_a_supervisor_leaves_no_process(tmp_path: Path) -> None:
    async def story() -> None:
        home = Home(tmp_path, "http://f")
        home.model("m")
        supervisor = Supervisor(read_manifests(tmp_path / "models"), settings=home.settings())
        running = asyncio.create_task(supervisor.run())
        await until(lambda: supervisor.count(Phase.READY) == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(story())
    assert not children()
