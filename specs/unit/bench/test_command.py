"""What cannot be meant is told before anything starts, and a missed floor sets the exit code."""

from __future__ import annotations

import pytest

from bench.command import _verdict
from bench.floors import judge
from bench.http import BENCH as HTTP
from bench.idle import BENCH as IDLE
from bench.tunnel import BENCH as TUNNEL
from blackstart.core.commands import ExitCode


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--rounds", "0"], "--rounds=0: not a whole number from 1 to 1000"),
        (["--size-mib", "much"], "--size-mib=much: not a whole number from 1 to 4096"),
        (["--carrier", "pigeon"], "--carrier=pigeon: unknown; try: some of takeover,asgi, or all"),
        (["--wire", "wet"], "--wire=wet: unknown"),
        (["--check", "--wire", "tls"], "--wire=tls: floors are held on plain tunnels; try: --wire plain"),
        (["--run-dir", ""], "--run-dir=: names no folder"),
    ],
)
def test_an_option_that_cannot_be_meant_is_told_in_one_line(
    argv: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for bench in (TUNNEL, HTTP, IDLE):
        assert bench.main(argv) == ExitCode.BAD_INPUT
        assert capsys.readouterr().err.startswith(f"blackstart: {told}")


def test_rows_are_those_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert HTTP.main(["--rows", "memory"]) == ExitCode.BAD_INPUT
    assert "--rows=memory: unknown; try: some of answer,small" in capsys.readouterr().err


def test_a_missed_floor_ends_with_one_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    found = judge("takeover/plain", {"down/raw": 0.16, "up/raw": 0.3})
    assert _verdict(found) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert told.startswith("blackstart: MISSED takeover/plain down/raw: 0.16")
    assert "up/raw" not in told


def test_floors_that_are_all_reached_end_with_zero() -> None:
    assert _verdict(judge("takeover/plain", {"down/raw": 0.2, "up/raw": 0.3})) == ExitCode.HELD
