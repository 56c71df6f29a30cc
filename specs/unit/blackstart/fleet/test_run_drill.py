"""The drill as a command: what it judged is told whatever happens at its end."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.core.commands import CommandError, ExitCode
from blackstart.fleet import run_drill as command
from blackstart.fleet.checks import Step
from blackstart.fleet.rehearsal import Rehearsal
from blackstart.process import GuardianGone
from blackstart.record import Run

if TYPE_CHECKING:
    from pathlib import Path


class PlayedFleet:
    """Serves nothing; its end is what the spec says."""

    trouble: Exception | None = None

    def __init__(self, _options: object, **_: Any) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def end(self) -> None:
        if self.trouble is not None:
            raise self.trouble


class PlayedDrill:
    """One check that holds."""

    def __init__(self, fleet: PlayedFleet, **_: Any) -> None:
        self.fleet = fleet

    def steps(self) -> list[Step]:
        return [Step(id="ready", make=lambda: "all up")]


@pytest.fixture(autouse=True)
def _played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "Fleet", PlayedFleet)
    monkeypatch.setattr(command, "Drill", PlayedDrill)
    monkeypatch.setattr(command, "_postgres_gone", lambda _: "")


def drilled(tmp_path: Path, *, as_json: bool) -> tuple[int, str]:
    """The exit code and the complaint, as the command line gives them."""
    asked = Namespace(json=as_json, postgres="embedded", preset="drill", run_dir=str(tmp_path), seed="7")
    try:
        return command.run_drill(asked), ""
    except CommandError as error:
        return error.code, str(error)
    except RuntimeError as lost:
        return ExitCode.HARNESS_FAILURE, f"no verdict was told, only {lost!r}"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_fleet_that_cannot_be_ended_takes_no_verdict_away_and_is_the_harness_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    assert drilled(tmp_path, as_json=as_json) == (ExitCode.HELD, ""), "the control"
    capsys.readouterr()
    monkeypatch.setattr(PlayedFleet, "trouble", RuntimeError("the database\nstays"))
    code, complaint = drilled(tmp_path, as_json=as_json)
    assert "could not be ended: RuntimeError: the database stays; try: read " in complaint
    assert code == ExitCode.HARNESS_FAILURE
    last = capsys.readouterr().out.splitlines()[-1]
    if as_json:
        assert [check["verdict"] for check in json.loads(last)["checks"]] == ["HELD"]
    else:
        assert last.startswith("drill: 1 held, 0 failed, 0 inconclusive in ")
    assert Run.attach(tmp_path / "latest").facts()["verdict"] == "harness-failure"


def test_infrastructure_that_cannot_be_ended_takes_no_verdict_away_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def close(_: object) -> None:
        raise RuntimeError("the server stays")

    monkeypatch.setattr(Rehearsal, "__exit__", _exit_then(close))
    code, complaint = drilled(tmp_path, as_json=True)
    assert "could not be ended: RuntimeError: the server stays; try: read " in complaint
    assert code == ExitCode.HARNESS_FAILURE
    assert json.loads(capsys.readouterr().out)["held"] == 1


@pytest.mark.parametrize("as_json", [True, False])
def test_what_was_seen_without_the_guardian_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, as_json: bool
) -> None:
    def gone(rehearsal: Rehearsal) -> None:
        raise GuardianGone(f"run {rehearsal.run.id}: its guardian ended by itself; try: start a new run")

    monkeypatch.setattr(Rehearsal, "require_guarded", gone)
    code, complaint = drilled(tmp_path, as_json=as_json)
    assert complaint.startswith("blackstart: guardian="), "judged all the same"
    assert complaint.endswith(": its guardian ended by itself; try: start a new run")
    assert code == ExitCode.HARNESS_FAILURE
    assert capsys.readouterr().out == ""


def _exit_then(close: Any) -> Any:
    real = Rehearsal.__exit__

    def leave(self: Rehearsal, *how: Any) -> None:
        real(self, *how)
        close(self)

    return leave
