"""The fuzzing finds what is wrong, keeps the case, plays it again, and says when memory grows; and a moment of it is clean."""

from __future__ import annotations

import logging
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from specs.fuzz import campaign as fuzzing
from specs.fuzz.__main__ import main
from specs.fuzz.campaign import TARGETS, Hangs, Outcome, campaign, replay

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = 40


@pytest.mark.parametrize("target", TARGETS)
def test_a_moment_of_fuzzing_finds_nothing(target: str) -> None:
    outcome = campaign([target], number=7, rounds=1, examples=EXAMPLES)
    assert outcome.crash is None, f"{outcome.crash}"
    assert outcome.examples[target] >= EXAMPLES, "control: it was played"


def of(play: Any, strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target of its own."""
    monkeypatch.setattr(fuzzing, "TARGETS", {"toy": SimpleNamespace(play=play, STRATEGY=strategy)})


CASES = st.fixed_dictionaries({"size": st.integers(0, 10_000), "data": st.binary(max_size=20)})


def test_what_breaks_is_made_small_kept_and_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(case: dict[str, Any]) -> None:
        assert case["size"] < 100, "too large"

    of(breaks, CASES, monkeypatch)
    crash = campaign(["toy"], number=1, rounds=2, examples=EXAMPLES).crash
    assert crash is not None
    assert crash.case == {"size": 100, "data": b""}
    path = crash.save(tmp_path / "kept")
    again = replay(path)
    assert again is not None
    assert "too large" in str(again.error)
    of(lambda _: None, CASES, monkeypatch)
    assert replay(path) is None, "the control: what was mended breaks no more"


@pytest.mark.parametrize(
    "held", ["1", "('toy',)", "('other', {})", "('frames', 1)", "[]", "(1", "{[]: 1}", "nonsense", "\0"]
)
def test_a_file_that_holds_no_case_is_named_and_plays_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    path = tmp_path / "other.case"
    path.write_text(held)
    monkeypatch.setattr(logging, "disable", lambda _level: None)  # this process goes on
    monkeypatch.setattr(sys, "argv", ["ci/fuzz", "--replay", str(path)])
    assert main() == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"blackstart: replay={path}: ")
    assert said.err.endswith("; try: a file that ci/fuzz has written\n")
    assert said.out == ""


def test_an_example_that_does_not_end_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(case: dict[str, Any]) -> None:
        while case["size"] >= 0:
            pass

    of(hangs, CASES, monkeypatch)
    monkeypatch.setattr(fuzzing, "EXAMPLE_CPU_S", fuzzing.EXAMPLE_CPU_S / 1000)
    crash = campaign(["toy"], number=1, rounds=1, examples=1).crash
    assert crash is not None
    assert isinstance(crash.error, Hangs)


MEBIBYTE = 1024 * 1024


def test_memory_that_grows_from_the_first_quarter_to_the_last_is_told() -> None:
    steady = Outcome(1, memory=[100 * MEBIBYTE + jitter * MEBIBYTE for jitter in (0, 3, 1, 2) * 4])
    assert steady.flat
    assert steady.passed
    grows = Outcome(1, memory=[(100 + 2 * step) * MEBIBYTE for step in range(16)])
    assert not grows.flat, "30 MiB more at the end than at the beginning"
    assert not grows.passed
