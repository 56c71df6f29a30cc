"""Signals become one exception, and leave nothing behind for the children of whoever called."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster import capabilities, waiting
from blackstart.cluster.waiting import current, eventually
from blackstart.core.commands import BadInput, SetUpFailed
from blackstart.fleet import up
from blackstart.fleet.rehearsal import SIGNALS, Interrupted, Rehearsal, interruptible, setting_up
from blackstart.process import GuardianGone
from blackstart.process.guard import ANSWER_WITHIN_S
from blackstart.record import identity_of, read_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from blackstart.process import Handle


def test_where_no_signal_came_the_handlers_of_before_are_back() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    with interruptible():
        assert {number: signal.getsignal(number) for number in SIGNALS} != before, "the control"
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_heard_and_no_later_one(number: signal.Signals) -> None:
    story = f"""
import os, signal
from blackstart.fleet.rehearsal import Interrupted, interruptible
try:
    with interruptible():
        os.kill(os.getpid(), {int(number)})
        signal.pause()
except Interrupted as asked:
    print(asked, flush=True)
for later in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    os.kill(os.getpid(), later)
print("still here")
"""
    told = subprocess.run(
        [sys.executable, "-c", story], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert told.stdout.split("\n") == [number.name, "still here", ""], told.stderr
    assert told.returncode == 0


def test_an_interruption_is_a_keyboard_interrupt_so_that_no_except_exception_takes_it() -> None:
    assert issubclass(Interrupted, KeyboardInterrupt)


def _rehearsal(parent: Path) -> Rehearsal:
    return Rehearsal(spec="drill", postgres="embedded", run_dir=parent, seed=7)


def _kinds(rehearsal: Rehearsal, node: str) -> list[str]:
    return [entry.kind for entry in read_journal(rehearsal.run.dir) if entry.node == node]


@pytest.mark.parametrize("asked", [True, False], ids=["by-the-drill", "with-the-run"])
def test_the_end_of_what_the_run_shares_is_in_the_journal(tmp_path: Path, *, asked: bool) -> None:
    within = current().factor * ANSWER_WITHIN_S
    with _rehearsal(tmp_path) as rehearsal:
        rehearsal.spawner.spawn(
            node="postgres", argv=["tail", "-f", "/dev/null"], log_dir=tmp_path, spec="infra", shared=True
        )
        assert "exit" not in _kinds(rehearsal, "postgres"), "the control: it runs"
        if asked:
            assert rehearsal.end_shared(within=within) == []
            assert "exit" in _kinds(rehearsal, "postgres")
        rehearsal.finish("passed")
    assert _kinds(rehearsal, "postgres").count("exit") == 1


def test_a_run_says_what_it_ran_on_and_what_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capabilities, "lacking", lambda name: None if name == "go" else f"{name} is not here")
    facts = _rehearsal(tmp_path).run.facts()
    assert facts["versions"] == {"python": platform.python_version(), "blackstart": version("blackstart")}
    assert facts["capabilities"] == {
        "browser": "browser is not here",
        "faketime": "faketime is not here",
        "go": "here",
        "openssl": "openssl is not here",
    }


@pytest.mark.parametrize("text", ["abc", "0", "-1", "nan"])
def test_a_time_factor_that_cannot_be_meant_is_bad_input_and_makes_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(waiting, "_installed", [])
    monkeypatch.setenv("BLACKSTART_TIME_FACTOR", text)
    with pytest.raises(BadInput) as refused:
        _rehearsal(tmp_path / "logs")
    assert (
        str(refused.value)
        == f"blackstart: BLACKSTART_TIME_FACTOR={text}: not a number above 0; try: BLACKSTART_TIME_FACTOR=2"
    )
    assert not (tmp_path / "logs").exists()
    monkeypatch.setenv("BLACKSTART_TIME_FACTOR", "2")
    assert _rehearsal(tmp_path / "logs").run.dir.is_dir(), "the control"


def _kill_guardian(rehearsal: Rehearsal) -> None:
    assert rehearsal._lease is not None
    pid = rehearsal._lease.guardian_pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: identity_of(pid), None, within=ANSWER_WITHIN_S)


def _server(rehearsal: Rehearsal, log_dir: Path) -> Handle:
    """What the run shares, and the folder in memory where its data would lie."""
    assert rehearsal.infra.scratch.folder.is_dir()
    return rehearsal.spawner.spawn(
        node="postgres", argv=["tail", "-f", "/dev/null"], log_dir=log_dir, spec="infra", shared=True
    )


@pytest.mark.parametrize("asked", [True, False], ids=["by-the-drill", "with-the-run"])
def test_without_its_guardian_a_run_ends_everything_by_itself_and_says_so(
    tmp_path: Path, *, asked: bool
) -> None:
    rehearsal = _rehearsal(tmp_path)
    made: list[tuple[Handle, Path]] = []

    def story() -> None:
        with rehearsal, setting_up():
            made.append((_server(rehearsal, tmp_path), rehearsal.infra.scratch.folder))
            rehearsal.require_guarded()  # the control
            _kill_guardian(rehearsal)
            assert made[0][0].alive, "the control: nobody has ended it"
            if asked:
                rehearsal.end_shared(within=ANSWER_WITHIN_S)
            rehearsal.require_guarded()

    with pytest.raises(SetUpFailed) as told:
        story()
    server, folder = made[0]
    assert str(told.value).startswith(f"blackstart: guardian={rehearsal.run.id}: its guardian (pid ")
    assert "ended by itself, so everything was ended; try: read " in str(told.value)
    assert not server.alive, "what the run shares is left"
    assert not folder.exists(), "its data is left"
    assert rehearsal.run.facts()["verdict"] == "harness-failure"


class _Quiet:
    """A fleet in which nothing dies, looked at once."""

    looks = 0

    @property
    def dead(self) -> Sequence[object]:
        self.looks += 1
        assert self.looks == 1, "it stayed without its guardian"
        return ()


def test_an_end_that_is_asked_for_while_ready_is_being_said_is_a_graceful_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked_meanwhile(text: str) -> None:
        assert text == "ready"
        raise Interrupted("SIGINT")

    monkeypatch.setattr(up, "say", asked_meanwhile)
    nothing_yet = SimpleNamespace()
    assert up._stay(nothing_yet, nothing_yet, ready="ready") == "SIGINT"  # type: ignore[arg-type]  # not looked at


def test_up_does_not_stay_without_its_guardian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = _Quiet()
    with _rehearsal(tmp_path) as rehearsal:
        told = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: _kill_guardian(rehearsal))
        monkeypatch.setattr(up, "time", told)
        with pytest.raises(GuardianGone, match="ended by itself"):
            up._stay(fleet, rehearsal, ready="ready")  # type: ignore[arg-type]  # as much of a fleet as it looks at
    assert fleet.looks == 1


def _interrupted(
    rehearsal: Rehearsal, log_dir: Path, harm: Callable[[Rehearsal], None]
) -> tuple[Handle, Path]:
    """A run that is harmed, asked to end, and told about as the command line would."""
    made: list[tuple[Handle, Path]] = []

    def story() -> None:
        with rehearsal, setting_up():
            made.append((_server(rehearsal, log_dir), rehearsal.infra.scratch.folder))
            node = rehearsal.spawner.spawn(
                node="node", argv=["tail", "-f", "/dev/null"], log_dir=log_dir, spec="up"
            )
            harm(rehearsal)
            try:
                raise Interrupted("SIGINT")
            finally:
                node.kill(within=ANSWER_WITHIN_S)

    with pytest.raises((SetUpFailed, OSError)) as told:
        story()
    assert isinstance(told.value, SetUpFailed), f"a traceback: {told.value!r}"
    assert str(told.value).startswith(f"blackstart: run folder={rehearsal.run.dir}: ")
    assert str(told.value).count("; try: ") == 1
    made[0][0].wait(within=ANSWER_WITHIN_S)
    eventually(made[0][1].exists, False, within=ANSWER_WITHIN_S)
    assert not made[0][0].alive
    return made[0]


def test_a_run_folder_removed_meanwhile_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    rehearsal = _rehearsal(tmp_path / "logs")
    (tmp_path / "nodes").mkdir()
    _interrupted(rehearsal, tmp_path / "nodes", lambda rehearsal: shutil.rmtree(rehearsal.run.dir))
    assert not rehearsal.run.dir.exists()


def test_a_disk_that_fills_up_is_one_line_and_keeps_nothing_from_being_ended(tmp_path: Path) -> None:
    def fill(rehearsal: Rehearsal) -> None:
        full = os.open("/dev/full", os.O_RDWR)
        os.dup2(full, rehearsal.journal._file)
        os.close(full)
        with pytest.raises(OSError, match="No space left"):
            rehearsal.journal.write("mark", text="the control")

    _interrupted(_rehearsal(tmp_path), tmp_path, fill)


def test_a_closed_stdout_is_told_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SetUpFailed, match="blackstart: stdout=closed: nobody could read what is told; try: "):
        _rehearsal(tmp_path / "logs")
    assert not (tmp_path / "logs").exists()
