"""The clock of one live process, moved while it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.capabilities import find_faketime
from blackstart.cluster.waiting import eventually
from blackstart.core.fault import FaultNotConfirmed, Finding
from blackstart.faults import standing
from blackstart.faults.clock import ClockFile, ClockSkew, sweep_leftovers
from blackstart.process import HarnessFailure
from blackstart.record import Journal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specs.unit.blackstart.faults.conftest import Rig

WITHIN_S = 10.0
HOUR_S = 3600.0
STAMPS = """
import threading, time
pause = threading.Event()
while True:
    print("stamp", time.time(), "ran", time.monotonic(), flush=True)
    pause.wait(0.02)
"""


def fake_library(folder: Path) -> Path:
    library = folder / "usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    return library


def test_the_library_is_found_where_debian_puts_it_and_its_absence_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find_faketime(tmp_path) is None
    assert find_faketime(tmp_path) is None
    library = fake_library(tmp_path)
    assert find_faketime(tmp_path) == library
    monkeypatch.setattr("blackstart.faults.clock.find_faketime", lambda: None)
    with pytest.raises(
        HarnessFailure, match=r"libfaketime.so.1 is not installed; try: apt-get install faketime"
    ):
        ClockFile(tmp_path / "clock")


def test_a_library_that_is_preloaded_already_stays(tmp_path: Path) -> None:
    clock = ClockFile(tmp_path / "clock", library=Path("/lib/faketime.so"))
    assert clock.environment({})["LD_PRELOAD"] == "/lib/faketime.so"
    assert clock.environment({"LD_PRELOAD": "/a.so"})["LD_PRELOAD"] == "/lib/faketime.so:/a.so"
    assert clock.environment({})["FAKETIME_DONT_FAKE_MONOTONIC"] == "1", "deadlines would jump with the clock"


def test_what_a_killed_process_left_in_shared_memory_is_swept_and_a_living_ones_is_not(
    tmp_path: Path,
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait(WITHIN_S)
    left = [tmp_path / f"faketime_shm_{child.pid}", tmp_path / f"sem.faketime_sem_{child.pid}"]
    kept = [tmp_path / f"faketime_shm_{os.getpid()}", tmp_path / "faketime_shm_x", tmp_path / "PostgreSQL.1"]
    for path in (*left, *kept):
        path.touch()
    assert sweep_leftovers(tmp_path) == 2
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    assert sweep_leftovers(tmp_path / "absent") == 0


def test_the_undo_command_sets_the_clock_true(tmp_path: Path) -> None:
    clock = ClockFile(tmp_path / "clock", library=Path("/lib/faketime.so"))
    skew = ClockSkew(clock, node="n", offset_s=HOUR_S, read=lambda: None)
    skew.inject()
    assert clock.path.read_text().strip() == "+3600.000000", "control: it was skewed"
    subprocess.run(skew.undo(), check=True, timeout=WITHIN_S)
    assert clock.path.read_text().strip() == "+0"


def test_a_skew_is_judged_by_what_the_process_shows(tmp_path: Path) -> None:
    clock = ClockFile(tmp_path / "clock", library=Path("/lib/faketime.so"))
    believed: list[float | None] = [None, 1000.0, 1000.0 + HOUR_S]
    skew = ClockSkew(clock, node="n", offset_s=HOUR_S, read=lambda: believed.pop(0), now=lambda: 1000.0)
    assert [skew.confirm().finding for _ in range(3)] == [
        Finding.INCONCLUSIVE,
        Finding.MISMATCH,
        Finding.CONFIRMED,
    ]
    with pytest.raises(ValueError, match="cannot be told from a true clock"):
        ClockSkew(clock, node="n", offset_s=1.0, read=lambda: None)


@pytest.fixture
def clock(tmp_path: Path) -> ClockFile:
    return ClockFile(tmp_path / "clock")


@pytest.fixture
def journal(rig: Rig) -> Iterator[Journal]:
    with Journal(rig.run, writer="clock") as own:
        yield own


@pytest.mark.needs("faketime")
@pytest.mark.parametrize("offset_s", [HOUR_S, -HOUR_S])
def test_a_live_process_sees_the_skew_and_its_end_and_its_monotonic_clock_stays_true(
    rig: Rig, clock: ClockFile, journal: Journal, tmp_path: Path, offset_s: float
) -> None:
    handle = rig.spawner.spawn(
        node="stamps",
        argv=[sys.executable, "-c", STAMPS],
        env=clock.environment(),
        log_dir=tmp_path,
        spec="clock",
        incarnation=1,
    )

    def last() -> tuple[float, float] | None:
        told = re.findall(r"stamp ([\d.]+) ran ([\d.]+)\n", handle.log.path.read_text())
        return (float(told[-1][0]), float(told[-1][1])) if told else None

    def believed() -> float | None:
        stamp = last()
        return None if stamp is None else stamp[0]

    def monotonic_off_s() -> float:
        stamp = last()
        assert stamp is not None
        return abs(time.monotonic() - stamp[1])

    skew = ClockSkew(clock, node="stamps", offset_s=offset_s, read=believed)
    try:
        eventually(believed, lambda stamp: abs((stamp or 0) - time.time()) < WITHIN_S, within=WITHIN_S)
        with standing(
            skew, journal=journal, ledger=rig.spawner.ledger, user=None, within_s=WITHIN_S
        ) as stands:
            assert stands.evidence.confirmed
            assert monotonic_off_s() < WITHIN_S, "the monotonic clock moved too"
        assert abs((believed() or 0) - time.time()) < WITHIN_S
    finally:
        handle.kill(within=WITHIN_S)


def test_a_process_that_was_not_started_for_it_shows_no_skew_and_the_fault_is_not_confirmed(
    rig: Rig, journal: Journal, tmp_path: Path
) -> None:
    clock = ClockFile(tmp_path / "clock", library=Path("/lib/faketime.so"))
    skew = ClockSkew(clock, node="plain", offset_s=HOUR_S, read=time.time)
    with (
        pytest.raises(FaultNotConfirmed, match=r"plain is [+-]0\.0 s off, \+3600 s were wanted"),
        standing(skew, journal=journal, ledger=rig.spawner.ledger, user=None, within_s=0.1),
    ):
        raise AssertionError("the block ran under a fault nobody had seen")
