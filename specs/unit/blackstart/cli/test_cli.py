"""The command line from outside: one error form, one table of exit codes, only commands that exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from blackstart import cli
from blackstart.cli import main
from blackstart.core.commands import BadInput, Command, ExitCode, SetUpFailed

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

FORM = re.compile(r"blackstart: [^=]+=.*: .+; try: .+\n")


def commanding(monkeypatch: pytest.MonkeyPatch, error: BaseException | int) -> None:
    def run(_: Namespace) -> int:
        if isinstance(error, BaseException):
            raise error
        return error

    def add(parser: ArgumentParser) -> None:
        parser.add_argument("--size", choices=["small", "large"])

    monkeypatch.setattr(
        cli, "find_commands", lambda: [Command(name="do", summary="does it", add_arguments=add, run=run)]
    )


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["frobnicate"], "command=frobnicate: no such choice; try: do"),
        (["do", "--nope"], "argument=--nope: unknown here; try: blackstart"),
        (["do", "--siz", "small"], "argument=--siz small: unknown here"),
        (["do", "--size", "huge"], "--size=huge: no such choice; try: small, large"),
        (["do", "--size"], "--size=: expected one argument; try: blackstart do --help"),
        (["--nope"], "argument=--nope: unknown here"),
    ],
)
def test_an_argument_that_cannot_be_meant_is_two_and_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: list[str], told: str
) -> None:
    commanding(monkeypatch, 0)
    assert main(argv) == ExitCode.BAD_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    assert FORM.fullmatch(err)
    assert told in err


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        (0, 0),
        (1, 1),
        (3, 3),
        (BadInput("--x", 1, "wrong", remedy="2"), 2),
        (SetUpFailed("postgres", "x", "does not answer", remedy="start it"), 4),
        (RuntimeError("a defect"), 4),
        (KeyboardInterrupt(), 130),
    ],
)
def test_every_ending_has_its_code(
    monkeypatch: pytest.MonkeyPatch, ending: BaseException | int, code: int
) -> None:
    commanding(monkeypatch, ending)
    assert main(["do"]) == code


def test_secrets_never_stand_in_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commanding(
        monkeypatch, BadInput("--postgres", "postgresql://u:hidden@h/db", "no answer", remedy="start it")
    )
    main(["do"])
    err = capsys.readouterr().err
    assert "hidden" not in err
    assert "postgresql://u:***@h/db" in err


def test_a_defect_of_ours_is_told_with_its_trace_and_is_no_verdict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commanding(monkeypatch, RuntimeError("a defect\nat postgresql://u:hidden@h/db"))
    assert main(["do"]) == ExitCode.HARNESS_FAILURE
    err = capsys.readouterr().err
    assert "RuntimeError: a defect" in err
    last = err.splitlines(keepends=True)[-1]
    assert FORM.fullmatch(last), f"no line of ours at the end: {last!r}"
    assert "failure=RuntimeError: a defect at postgresql://u:***@h/db" in last
    assert "hidden" not in err


def test_no_command_prints_help_and_ends_with_the_line_of_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commanding(monkeypatch, 0)
    assert main([]) == ExitCode.BAD_INPUT
    out, err = capsys.readouterr()
    assert out == ""
    assert "does it" in err
    last = err.splitlines(keepends=True)[-1]
    assert FORM.fullmatch(last), f"no line of ours at the end: {last!r}"
    assert "command=: missing; try: blackstart" in last


def test_the_installed_command_tells_its_version_and_lists_only_what_exists() -> None:
    version = subprocess.run(
        [sys.executable, "-m", "blackstart", "--version"], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"blackstart \d+\.\d+\.\d+\S*\n", version.stdout)

    told = subprocess.run(
        [sys.executable, "-m", "blackstart", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert {"attack", "drill", "up"} <= set(re.findall(r"^    (\w+)", told, re.MULTILINE))
    assert "130 Ctrl-C" in told
    assert "replay" not in told


def test_a_reader_that_went_away_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    commanding(monkeypatch, BrokenPipeError("gone"))
    kept = os.dup(1)
    try:
        assert main(["do"]) == ExitCode.HARNESS_FAILURE
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    err = capfd.readouterr().err
    assert "stdout=pipe: its reader went away" in err
    assert FORM.fullmatch(err)


def test_a_closed_stdout_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    commanding(monkeypatch, 3)
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["do"]) == 3
