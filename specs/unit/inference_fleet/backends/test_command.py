"""The command line a model process gets, and what it may know of the worker's environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from inference_fleet.backends.command import argv, environment
from inference_fleet.backends.manifest import Backend, Manifest
from inference_fleet.settings import Timings

TIMINGS = Timings.drill()


def manifest(*command: str, pace: float = 0.0) -> Manifest:
    backend = Backend.COMMAND if command else Backend.BABBLER
    return Manifest(
        name="m",
        folder=Path("/models/m"),
        backend=backend,
        command=command,
        ready_path="/",
        tokens_per_second=pace,
    )


def test_placeholders_are_filled_once_and_other_braces_are_left_alone() -> None:
    command = manifest(
        "{python}", "--listen=127.0.0.1:{port}", "{folder}/{name}", "{data_dir}", '{"json": "{other}"}', "{tokens_per_second}",
        pace=2.5,
    )  # fmt: skip
    line = argv(command, port=20051, data_dir=Path("/data/{port}"), parent_pid=7)

    program = line[line.index("7") + 1 :]
    assert program == [
        sys.executable,
        "--listen=127.0.0.1:20051",
        "/models/m/m",
        "/data/{port}",
        '{"json": "{other}"}',
        "2.5",
    ]


def test_a_babbler_is_started_with_its_pace_its_folder_and_its_parent() -> None:
    line = argv(manifest(pace=20), port=20051, data_dir=Path("/data"), parent_pid=7)

    assert line[line.index("--port") + 1] == "20051"
    assert line[line.index("--tokens-per-second") + 1] == "20"
    assert line[line.index("--parent-pid") + 1] == "7"
    assert line[line.index("--name") + 1] == "m"


def test_a_model_process_is_told_no_secret_of_the_worker() -> None:
    given = {
        "PATH": "/bin",
        "BLACKSTART_REGISTRATION_TOKEN": "secret",
        "BLACKSTART_NODE_CREDENTIAL_FILE": "/credential",
        "BLACKSTART_RUN": "r1",
        "BLACKSTART_USER": "12",
        "BLACKSTART_TIMINGS": "drill",
    }

    assert environment(given) == {
        "PATH": "/bin",
        "BLACKSTART_RUN": "r1",
        "BLACKSTART_USER": "12",
        "BLACKSTART_TIMINGS": "drill",
    }


def test_a_command_becomes_the_program_itself_under_the_same_pid() -> None:
    probe = manifest("{python}", "-c", "import os; print(os.getpid(), os.getppid(), '{port}')")
    line = argv(probe, port=1, data_dir=Path("/data"), parent_pid=os.getpid())

    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        told, _ = process.communicate(timeout=TIMINGS.backend_start_s)

    assert told.split() == [str(process.pid), str(os.getpid()), "1"]


def test_a_program_that_cannot_be_run_says_so() -> None:
    line = argv(
        manifest("/no/such/program", "{port}"), port=1, data_dir=Path("/data"), parent_pid=os.getpid()
    )

    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=TIMINGS.backend_start_s)

    assert done.returncode == 1
    assert "/no/such/program: No such file or directory" in done.stderr
