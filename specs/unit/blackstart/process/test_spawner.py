"""What a child is given, and what is on file before it exists."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.process import Ending, GuardianGone, SpawnError, environ_of
from blackstart.record import Identity, State, read_ledger
from blackstart.record.ledger import owed

from .players import marked, new_mark

if TYPE_CHECKING:
    from .conftest import Yard

WITHIN_S = 10.0
SECRET = "hunter2-9f8e7d"


def opened_by(pid: int) -> list[str]:
    return sorted(path.name for path in Path(f"/proc/{pid}/fd").iterdir())


def test_what_is_spawned_is_owed_an_end_before_it_exists(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[State] = []
    execute = subprocess.Popen

    def looks_first(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        seen.extend(charge.state for charge in owed(read_ledger(yard.run.dir)))
        return execute(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", looks_first)
    handle = yard.spawn("sleep", new_mark())
    assert seen == [State.INTEND], "the process existed before anybody owed it an end"
    (charge,) = owed(read_ledger(yard.run.dir))
    assert (charge.state, charge.identity, charge.user) == (State.BEGAN, handle.identity, os.getpid())
    assert isinstance(charge.identity, Identity)
    handle.kill(within=WITHIN_S)
    assert owed(read_ledger(yard.run.dir)) == []


@pytest.mark.holds("B-189")
def test_the_environment_is_what_the_kernel_says_it_is(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLACKSTART_DATABASE_URL", "of the shell that runs the specs")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "this one")
    handle = yard.spawn("sleep", new_mark(), env={"BLACKSTART_NODE_NAME": "w"})
    environ = environ_of(handle.pid)
    assert environ == handle.environ
    assert environ["BLACKSTART_RUN"] == yard.run.id
    assert environ["BLACKSTART_USER"] == str(os.getpid())
    assert environ["BLACKSTART_NODE_NAME"] == "w"
    assert environ["PYTHONUNBUFFERED"] == "1"
    assert environ["PATH"] == os.environ["PATH"]
    assert not {"BLACKSTART_DATABASE_URL", "PYTEST_CURRENT_TEST"} & set(environ)
    handle.kill(within=WITHIN_S)
    with pytest.raises(ProcessLookupError, match="cannot be read"):
        environ_of(handle.pid)


def test_what_the_run_shares_names_no_user(yard: Yard) -> None:
    handle = yard.spawn("sleep", new_mark(), shared=True)
    assert "BLACKSTART_USER" not in handle.environ, (
        "a shared process would die with the user that asked first"
    )
    assert handle.environ["BLACKSTART_RUN"] == yard.run.id
    assert [charge.user for charge in owed(read_ledger(yard.run.dir))] == [None]


@pytest.mark.holds("H-62", "B-177")
def test_a_child_shares_no_stdio_no_descriptor_and_no_session_with_us(yard: Yard) -> None:
    with Path(os.devnull).open("rb") as file:
        os.set_inheritable(file.fileno(), True)
        handle = yard.spawn("sh", "-c", "readlink /proc/$$/fd/0; ls /proc/$$/fd; cat; exec sleep 300")
        handle.log.wait_for("^2$", within=WITHIN_S)
        eventually(
            lambda: opened_by(handle.pid), ["0", "1", "2"], within=WITHIN_S
        )  # a start opens some for a moment
    assert handle.log.text().startswith("/dev/null\n")
    links = {Path(f"/proc/{handle.pid}/fd/{number}").readlink() for number in (1, 2)}
    assert links == {handle.log.path}
    assert os.getsid(handle.pid) == os.getpgid(handle.pid) == handle.pid


@pytest.mark.holds("H-62")
def test_both_streams_are_in_the_log_from_the_first_byte_and_unbuffered(yard: Yard) -> None:
    script = "import os, sys, time; print('out'); sys.stderr.write('err\\n'); time.sleep(300)"
    handle = yard.spawn(sys.executable, "-c", script)
    handle.log.wait_for("err", within=WITHIN_S)
    assert handle.log.text() == "out\nerr\n"
    buffered = yard.spawn(sys.executable, "-c", script, node="control", env={"PYTHONUNBUFFERED": ""})
    buffered.log.wait_for("err", within=WITHIN_S)
    assert buffered.log.text() == "err\n"


@pytest.mark.holds("H-63", "B-179")
def test_each_incarnation_has_its_own_log_and_none_is_truncated(yard: Yard) -> None:
    first = yard.spawn("echo", "first", incarnation=1)
    first.wait(within=WITHIN_S)
    second = yard.spawn("echo", "second", incarnation=2)
    second.wait(within=WITHIN_S)
    assert (first.log.path.name, second.log.path.name) == ("node.1.log", "node.2.log")
    assert (first.log.text(), second.log.text()) == ("first\n", "second\n")
    again = yard.spawn("echo", "again", incarnation=1)
    again.wait(within=WITHIN_S)
    assert again.log.text() == "first\nagain\n", "a restart erased the log of the dead"


@pytest.mark.holds("H-15")
def test_a_command_can_be_wrapped_and_stays_the_process_we_hold(yard: Yard) -> None:
    handle = yard.spawn("sleep", new_mark(), wrap=("nice", "-n", "7"))
    nicer = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 7)
    eventually(lambda: os.getpriority(os.PRIO_PROCESS, handle.pid), nicer, within=WITHIN_S)
    eventually(lambda: Path(f"/proc/{handle.pid}/comm").read_text().strip(), "sleep", within=WITHIN_S)


def test_a_command_that_cannot_be_executed_is_named_and_nothing_is_owed(yard: Yard) -> None:
    with pytest.raises(SpawnError, match=r"node\.1: 'no-such-program' .* could not be started"):
        yard.spawn("no-such-program")
    with pytest.raises(SpawnError, match="could not be started"):
        yard.spawn("true", cwd=Path("/no/such/folder"))
    assert owed(read_ledger(yard.run.dir)) == []


def test_a_child_whose_guardian_died_during_the_spawn_is_not_left(
    own_yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = new_mark()
    execute = subprocess.Popen

    def guardian_dies_after(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        child = execute(*arguments, **options)
        os.kill(own_yard.lease.guardian_pid, signal.SIGKILL)
        eventually(lambda: own_yard.lease.alive, False, within=WITHIN_S)
        return child

    monkeypatch.setattr(subprocess, "Popen", guardian_dies_after)
    with pytest.raises(GuardianGone):
        own_yard.spawn("sleep", mark)
    assert marked(mark) == [], "the child of a failed spawn was left"


@pytest.mark.holds("B-181")
@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"argv": "sleep 1; rm -rf x"}, "a shell line; try: a list of words"),
        ({"argv": []}, "nothing to execute"),
        ({"argv": ["a\0b"]}, "without NUL"),
        ({"node": "a/b"}, "cannot name a file"),
        ({"node": ""}, "cannot name a file"),
        ({"node": "x" * 300}, "cannot name a file"),
        ({"incarnation": 0}, "they count from 1"),
        ({"ports": (70000,)}, "is no port"),
        ({"env": {"BLACKSTART_RUN": "mine"}}, "is the harness's to set"),
        ({"ending": Ending.POSTGRES}, "needs to know its data folder"),
    ],
)
def test_an_argument_that_makes_no_sense_is_named_before_anything_is_started(
    yard: Yard, options: dict[str, Any], named: str
) -> None:
    sensible: dict[str, Any] = {
        "node": "node",
        "argv": ["true"],
        "log_dir": yard.log_dir,
        "spec": "spec",
    }
    with pytest.raises((TypeError, ValueError), match=named):
        yard.spawner.spawn(**sensible | options)
    assert owed(read_ledger(yard.run.dir)) == []
    assert yard.events("spawn") == []


def test_the_journal_tells_what_was_spawned_and_no_secret(yard: Yard) -> None:
    handle = yard.spawn("sleep", new_mark(), f"--token={SECRET}")
    (event,) = yard.events("spawn")
    assert (event.node, event.incarnation, event.data["pid"]) == ("node", 1, handle.pid)
    assert SECRET not in str(event.data)


def test_the_ledger_and_the_journal_closed_a_handle_still_works(yard: Yard) -> None:
    handle = yard.spawn("sleep", new_mark())
    yard.journal.close()
    yard.spawner.close()
    assert handle.kill(within=WITHIN_S).exit.signal == signal.SIGKILL
