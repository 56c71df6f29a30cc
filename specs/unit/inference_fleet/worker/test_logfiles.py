"""Output is kept, in bounds, and never written over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inference_fleet.worker import logfiles
from inference_fleet.worker.logfiles import KEPT_A_MODEL, LogFolder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_numbers_go_on_where_an_earlier_worker_stopped(tmp_path: Path) -> None:
    logs = LogFolder(tmp_path / "logs")
    assert logs.last_number() == 0
    logs.open("a", 3).close()
    logs.open("b.with.dots", 7).close()

    assert LogFolder(tmp_path / "logs").last_number() == 7


def test_a_models_oldest_files_go_and_another_models_stay(tmp_path: Path) -> None:
    logs = LogFolder(tmp_path)
    logs.open("other", 1).close()
    for number in range(2, 2 + KEPT_A_MODEL + 3):
        logs.open("m", number).close()

    kept = sorted(int(path.name.split(".")[1]) for path in tmp_path.glob("m.*.log"))
    assert kept == list(range(5, 5 + KEPT_A_MODEL))
    assert logs.file("other", 1).exists()


def test_a_file_past_its_limit_is_cut_to_its_newest_half_and_written_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfiles, "SIZE_LIMIT", 1000)
    logs = LogFolder(tmp_path)
    with logs.open("m", 1) as file:
        file.write(b"old " * 250)
        file.flush()
        assert not logs.oversized("m", 1), "the control: at its limit it is left alone"
        file.write(b"new " * 125)
        file.flush()
        assert logs.oversized("m", 1)

        logs.cut("m", 1)
        file.write(b"next")

    content = logs.file("m", 1).read_bytes()
    assert content == b"[cut to the last 500 bytes]\n" + b"new " * 125 + b"next"


def test_the_tail_of_a_process_that_wrote_nothing_is_empty(tmp_path: Path) -> None:
    assert LogFolder(tmp_path).tail("m", 1) == ""
