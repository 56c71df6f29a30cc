"""The babbler as a process: started by its command line, ended by a signal."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import urllib.request
from typing import TYPE_CHECKING

import pytest

from inference_fleet.backends.babbler.__main__ import main
from inference_fleet.backends.serving import listen
from inference_fleet.settings import Timings
from inference_fleet.settings.loopback import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TIMINGS = Timings.drill()


@pytest.fixture(autouse=True)
def _nothing_stays_frozen() -> Iterator[None]:
    """A `main` that is called here loads into this process, which has a life after it."""
    yield
    gc.unfreeze()


def test_it_serves_on_loopback_and_exits_with_0_on_sigterm(tmp_path: Path) -> None:
    with listen(LOOPBACK, 0) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "inference_fleet.backends.babbler", "serve"]
    with subprocess.Popen(
        [*command, "--port", str(port), "--name", "b", "--data-dir", str(tmp_path)],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert f"answers on {LOOPBACK}:{port}" in process.stderr.readline()
            with urllib.request.urlopen(
                f"http://{LOOPBACK}:{port}/healthz", timeout=TIMINGS.backend_start_s
            ) as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGTERM)

            assert process.wait(TIMINGS.backend_stop_s) == 0
        finally:
            process.kill()
        assert list(tmp_path.glob("babbler-*.model"))


def test_a_taken_port_is_an_error_that_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with listen(LOOPBACK, 0) as other:
        port = other.getsockname()[1]

        assert main(["serve", "--port", str(port), "--data-dir", str(tmp_path)]) == 2
        assert capsys.readouterr().err.startswith(f"blackstart: --port={port}: ")

        monkeypatch.setenv("BLACKSTART_TIMINGS", "fast")
        assert main(["serve", "--port", str(port), "--data-dir", str(tmp_path)]) == 2
        assert capsys.readouterr().err.startswith("blackstart: BLACKSTART_TIMINGS=fast: ")


def test_a_babbler_whose_parent_is_gone_does_not_start(tmp_path: Path) -> None:
    stranger = str(os.getppid())
    command = [sys.executable, "-m", "inference_fleet.backends.babbler", "serve", "--port", "1"]

    done = subprocess.run(
        [*command, "--data-dir", str(tmp_path), "--parent-pid", stranger],
        timeout=TIMINGS.backend_start_s,
        check=False,
        capture_output=True,
    )

    assert done.returncode == 86


@pytest.mark.parametrize(
    "arguments",
    [["--port", "0"], ["--port", "70000"], ["--port", "x"], ["--port", "9", "--tokens-per-second", "-1"]],
)
def test_a_wrong_argument_is_bad_input(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["serve", *arguments])

    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"blackstart: argument={arguments[-2]}: ")
    assert said.endswith("; try: python -m inference_fleet.backends.babbler serve --help\n")
