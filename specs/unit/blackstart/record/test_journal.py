"""The journal on disk is whole after `kill -9`, whoever wrote it and however it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from blackstart.core.journal import Kind
from blackstart.record import Journal, Run, read_journal

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2-9f8e7d"
WRITES_AND_DIES = """
import os, pathlib, signal, sys
from blackstart.record import Journal, Run
journal = Journal(Run.attach(pathlib.Path(sys.argv[1])), writer="victim")
for number in range(50):
    journal.write("mark", number=number)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.create(tmp_path, argv=["pytest"])


def test_every_event_before_a_kill_is_there(run: Run) -> None:
    ended = subprocess.run([sys.executable, "-c", WRITES_AND_DIES, run.dir], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [event.data["number"] for event in read_journal(run.dir)] == list(range(50))


def test_a_torn_last_line_costs_that_event_only(run: Run) -> None:
    with Journal(run, writer="w") as journal:
        for number in range(3):
            journal.write("mark", number=number)
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole[:-5])
    assert [event.data.get("number") for event in read_journal(run.dir)] == [0, 1]


def test_a_writer_that_comes_back_does_not_continue_a_torn_line(run: Run) -> None:
    with Journal(run, writer="w") as journal:
        journal.write("mark", number=0)
        journal.write("mark", number=1)
    journal.path.write_bytes(journal.path.read_bytes()[:-5])
    with Journal(run, writer="w") as journal:
        journal.write("mark", number=2)
    events = read_journal(run.dir)
    assert [event.data["number"] for event in events if event.kind is Kind.MARK] == [0, 2]
    assert [event.data["line"] for event in events if event.kind is Kind.HARNESS_FAILURE] == [2]


def test_writers_are_one_file_each_and_read_as_one_story(run: Run) -> None:
    with Journal(run, writer="gw0") as one, Journal(run, writer="gw1") as other:
        for number in range(6):
            (one, other)[number % 2].write("wait", number=number)
    assert {path.name for path in (run.dir / "journal").iterdir()} == {
        f"gw0.{os.getpid()}.jsonl",
        f"gw1.{os.getpid()}.jsonl",
    }
    assert [event.data["number"] for event in read_journal(run.dir)] == list(range(6))


def test_threads_never_mix_their_lines(run: Run) -> None:
    with Journal(run, writer="w") as journal:
        threads = [
            threading.Thread(target=lambda: [journal.write("mark", text="x" * 3000) for _ in range(25)])
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    events = read_journal(run.dir)
    assert sorted(event.seq for event in events) == list(range(1, 101))
    assert {event.kind for event in events} == {Kind.MARK}


def test_secrets_never_reach_the_journal(run: Run) -> None:
    with Journal(run, writer="w") as journal:
        journal.write(
            "spawn", argv=["--token", SECRET], env={"PASSWORD": SECRET}, url=f"postgres://a:{SECRET}@h"
        )
    assert SECRET not in journal.path.read_text()


def test_a_kind_outside_the_vocabulary_is_refused(run: Run) -> None:
    with Journal(run, writer="w") as journal, pytest.raises(ValueError, match="dance"):
        journal.write("dance")


def test_a_closed_journal_says_so(run: Run) -> None:
    journal = Journal(run, writer="w")
    journal.close()
    journal.close()
    with pytest.raises(ValueError, match="is closed"):
        journal.write("mark")
