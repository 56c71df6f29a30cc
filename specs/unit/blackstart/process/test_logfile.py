"""Reading a log from a mark on, and never waiting for a line that cannot come."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from blackstart.process import LogFile, LogTimeout, ProcessDied

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Yard

WITHIN_S = 30.0
SHORT_S = 0.2


class Dead:
    """Writes its last line between two looks and is dead at the second."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.looks = 0

    @property
    def alive(self) -> bool:
        self.looks += 1
        if self.looks == 2:
            with self.path.open("a") as file:
                file.write("last words")
        return self.looks < 2

    def describe_death(self) -> str:
        return "exit status 3\n  | the end of its log"


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path / "node.1.log")


def test_a_line_before_the_mark_is_not_seen_and_one_after_it_is(yard: Yard, tmp_path: Path) -> None:
    handle = yard.spawn(
        "sh", "-c", "echo ready 1; while :; do sleep 0.02; test -e go && echo ready 2; done", cwd=tmp_path
    )
    assert handle.log.wait_for(r"ready (\d)", within=WITHIN_S)[1] == "1"
    mark = handle.log.mark()
    (tmp_path / "go").touch()
    found = handle.log.wait_for(r"ready (\d)", within=WITHIN_S, after=mark)
    assert (found[1], found.string) == ("2", "ready 2")


@pytest.mark.holds("H-12")
def test_a_wait_ends_at_the_death_of_the_process_and_shows_the_end_of_its_log(yard: Yard) -> None:
    handle = yard.spawn("sh", "-c", "echo starting; echo cannot bind >&2; exit 3")
    began = time.monotonic()
    with pytest.raises((ProcessDied, LogTimeout)) as raised:
        handle.log.wait_for("ready", within=WITHIN_S)
    assert raised.type is ProcessDied, "the wait outlived its process"
    assert time.monotonic() - began < WITHIN_S / 2
    assert re.search(
        r"(?s)ended before a line matched 'ready'.*exit status 3.*cannot bind", str(raised.value)
    )


def test_the_last_lines_are_read_before_a_death_is_judged(log: LogFile) -> None:
    log.path.touch()
    dead = Dead(log.path)
    found = None
    with suppress(ProcessDied):
        found = log.wait_for("last words", within=WITHIN_S, watch=dead)
    assert found is not None, "a death was judged before the last words were read"
    with pytest.raises(ProcessDied, match="the end of its log"):
        log.wait_for("never written", within=WITHIN_S, watch=dead)


def test_a_log_that_never_appears_is_waited_for_and_told(log: LogFile) -> None:
    with pytest.raises(LogTimeout, match=r"(?s)no line matched 'x' within .*the log is empty"):
        log.wait_for("x", within=SHORT_S)
    assert log.tail() == ""
    assert log.mark().offset == 0


def test_a_time_out_tells_how_much_was_read_and_hints_at_buffering(log: LogFile) -> None:
    log.path.write_text("one\ntwo\n")
    with pytest.raises(LogTimeout, match=r"(?s)2 lines read.*buffers its output.*two"):
        log.wait_for("three", within=SHORT_S)


def test_an_unfinished_line_counts_only_once_nothing_follows_it(log: LogFile) -> None:
    log.path.write_bytes(b"port=12")
    assert log.wait_for(r"port=(\d+)", within=WITHIN_S)[1] == "12"
    log.path.write_bytes(b"port=12345\n")
    assert log.wait_for(r"port=(\d+)", within=WITHIN_S)[1] == "12345"


def test_lines_longer_than_a_chunk_and_bytes_that_are_no_text_are_read(log: LogFile) -> None:
    log.path.write_bytes(b"\xff\xfe" * 700_000 + b"\nready\n")
    assert log.wait_for("^ready$", within=WITHIN_S).string == "ready"


@pytest.mark.holds("H-64")
def test_a_note_is_a_line_of_its_own_in_the_process_its_log(yard: Yard) -> None:
    handle = yard.spawn("sh", "-c", "printf unfinished; exec sleep 300")
    handle.log.wait_for("unfinished", within=WITHIN_S)
    mark = handle.log.mark()
    handle.log.note("spec begins\nspecs/a.py::b")
    assert handle.log.text(after=mark) == "\n--- blackstart: spec begins specs/a.py::b\n"


def test_a_mark_of_another_incarnation_is_refused(log: LogFile, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a mark of this incarnation's log"):
        log.wait_for("x", within=WITHIN_S, after=LogFile(tmp_path / "node.2.log").mark())


def test_a_tail_has_the_last_lines_without_secrets(log: LogFile) -> None:
    log.path.write_text("".join(f"line {number}\n" for number in range(9)) + "token=hunter2\n")
    assert log.tail(3) == "line 7\nline 8\ntoken=***"
