"""`blackstart drill` as a person or a pipeline calls it: what it says is what its evidence shows, and it can fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.cluster.waiting import current, eventually
from blackstart.process.strays import Sought, find
from blackstart.record import Run, read_journal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from blackstart.core.journal import Event

COMMAND = [sys.executable, "-m", "blackstart", "drill"]
WITHIN_S = 180.0  # a drill takes ten seconds on a machine of its own
NOTHING_LEFT_S = 2.0  # what is promised
DRILL_S = 30.0  # what is promised of a warm one, from the first start to the last end
IDS = [
    "ready",
    "chat-local",
    "chat-relayed",
    "owner-killed",
    "rehomed",
    "chat-after",
    "restarted",
    "relayed-after",
    "no-leaks",
]


@contextmanager
def _drill(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*COMMAND, "--run-dir", str(folder), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as drill:
        try:
            yield drill
        finally:
            if drill.poll() is None:
                drill.kill()


def _until(drill: subprocess.Popen[str], check: str) -> list[str]:
    """The lines up to the one that tells of this check."""
    assert drill.stdout is not None
    lines: list[str] = []
    for line in drill.stdout:
        lines.append(line)
        if line.split()[1] == check:
            return lines
    pytest.fail(f"ended before it told of {check}: {lines}")


def _events(run: Run, kind: str, node: str | None = None) -> list[Event]:
    return [event for event in read_journal(run.dir) if event.kind == kind and node in {None, event.node}]


def test_a_drill_that_held_says_so_in_one_object_and_its_evidence_shows_the_kill(tmp_path: Path) -> None:
    with _drill(tmp_path, "--json", "--seed", "7") as drill:
        said, complaints = drill.communicate(timeout=WITHIN_S)
    assert (drill.returncode, complaints) == (0, "")
    told: dict[str, Any] = json.loads(said)
    assert said.count("\n") == 1
    assert [check["id"] for check in told["checks"]] == IDS
    assert {check["verdict"] for check in told["checks"]} == {"HELD"}
    assert (told["held"], told["failed"], told["inconclusive"]) == (len(IDS), 0, 0)
    assert told["seconds"] < DRILL_S * current().factor, f"it took {told['seconds']} s, longer than promised"
    run = Run.attach(tmp_path / "latest")
    assert told["evidence"] == str(run.dir)
    facts = run.facts()
    assert (facts["verdict"], facts["seed"]) == ("passed", 7)
    # the control: it is no list of words; the owner really was killed and came back as another process
    first, second = _events(run, "spawn", "frontend-0")
    assert (first.incarnation, second.incarnation) == (1, 2)
    assert first.data["pid"] != second.data["pid"]
    killed = _events(run, "exit", "frontend-0")[0]
    assert (killed.incarnation, killed.data["signal"]) == (1, signal.SIGKILL)
    # Postgres is the run's and ended by the guardian, and its end is told all the same
    assert [event.data["pid"] for event in _events(run, "exit", "postgres")] == [
        event.data["pid"] for event in _events(run, "spawn", "postgres")
    ]
    assert set(facts["versions"]) == {"python", "blackstart"}
    assert set(facts["capabilities"]) == {"browser", "faketime", "go", "openssl"}
    judged = [(event.data["check"], event.data["text"]) for event in _events(run, "verdict")]
    assert judged == [(check["id"], check["text"]) for check in told["checks"]]
    assert {event.data["verdict"] for event in _events(run, "verdict")} == {"passed"}
    assert find(Sought(run=run.id)) == []


def test_a_drill_whose_worker_dies_under_it_fails_names_every_check_and_ends_everything(
    tmp_path: Path,
) -> None:
    with _drill(tmp_path) as drill:
        lines = _until(drill, "chat-local")
        run = Run.attach(tmp_path / "latest")
        [worker] = _events(run, "spawn", "worker-0")
        os.kill(worker.data["pid"], signal.SIGKILL)
        assert drill.stdout is not None
        assert drill.stderr is not None
        said, complaints = (
            drill.stdout.read(),
            drill.stderr.read(),
        )  # `communicate` would pass over what is read ahead
        drill.wait(WITHIN_S)
    *checks, last = [*lines, *said.splitlines()]
    assert drill.returncode == 1, f"{checks} {last} {complaints}"
    assert [line.split()[1] for line in checks] == IDS
    assert [line.split()[0] for line in checks[:2]] == ["HELD", "HELD"]
    failed = [line for line in checks if line.startswith("FAILED ")]
    assert failed
    held, unclear = (sum(line.startswith(word) for line in checks) for word in ("HELD ", "INCONCLUSIVE "))
    assert last.startswith(f"drill: {held} held, {len(failed)} failed, {unclear} inconclusive in ")
    assert last.endswith(f"evidence: {run.dir}")
    assert run.facts()["verdict"] == "failed"
    assert find(Sought(run=run.id)) == []


def test_a_drill_that_is_interrupted_ends_everything_with_130(tmp_path: Path) -> None:
    with _drill(tmp_path) as drill:
        _until(drill, "ready")
        run = Run.attach(tmp_path / "latest")
        assert len(find(Sought(run=run.id))) >= 4  # the control for what follows
        drill.send_signal(signal.SIGINT)
        said, complaints = drill.communicate(timeout=WITHIN_S)
    assert drill.returncode == 130, complaints
    assert "drill: " not in said, "it told a result"
    assert complaints == f"blackstart: SIGINT: everything is ended; evidence: {run.dir}\n"
    eventually(lambda: find(Sought(run=run.id)), [], within=NOTHING_LEFT_S)
    assert run.facts()["verdict"] == "interrupted"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--preset", "fast"], 2, "--preset=fast: no such preset; try: drill or production"),
        (["--json", "--seed", "-1"], 2, "--seed=-1: not a whole number"),
        (["--postgres", "mysql"], 2, "--postgres=mysql: names no provider of Postgres"),
        (["--frontends", "3"], 2, "argument=--frontends 3: unknown here"),
        (["--run-dir", "/dev/null"], 2, "--run-dir=/dev/null: is a file"),
        (
            ["--json", "--postgres", "postgresql://u:hunter2@127.0.0.1:1/d"],
            4,
            "u:***@127.0.0.1:1/d: does not answer",
        ),
    ],
    ids=["preset", "seed", "postgres", "flag", "run-dir", "a Postgres that is not there"],
)
def test_a_drill_that_cannot_be_made_says_why_in_one_line_and_nothing_on_stdout(
    arguments: list[str], code: int, said: str, tmp_path: Path
) -> None:
    with _drill(tmp_path, *arguments) as drill:
        out, complaints = drill.communicate(timeout=WITHIN_S)
    assert (drill.returncode, out) == (code, ""), complaints
    assert complaints.startswith("blackstart: ")
    assert said in complaints
    assert "; try: " in complaints
    assert complaints.count("\n") == 1
    assert "hunter2" not in complaints
    assert code == 4 or list(tmp_path.iterdir()) == [], "something was begun"
