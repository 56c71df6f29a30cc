"""What `drill` and `up` are told wrongly is refused by the flag's name before anything starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blackstart.cli import main
from blackstart.fleet import run_drill, up

if TYPE_CHECKING:
    from pathlib import Path


def _begun(**_: object) -> None:
    raise AssertionError("begun in the current folder")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            ["drill", "--preset", "fast"],
            "blackstart: --preset=fast: no such preset; try: drill or production",
        ),
        (["drill", "--seed", "-1"], "blackstart: --seed=-1: not a whole number from 0 to"),
        (["drill", "--seed", "9" * 30], "blackstart: --seed=9999"),
        (["drill", "--seed", "9" * 5000], "not a whole number from 0 to"),
        (
            ["drill", "--postgres", "mysql"],
            "blackstart: --postgres=mysql: names no provider of Postgres; try: ",
        ),
        (["drill", "--postgres", "postgresql://u:hunter2@h:99999/d"], "has a port outside 0 to 65535"),
        (["drill", "--melt"], "blackstart: argument=--melt: unknown here"),
        (["up", "--frontends", "0"], "blackstart: --frontends=0: must be from 1 to 64; try: --frontends 2"),
        (["up", "--frontends", "two"], "blackstart: --frontends=two: not a whole number; try: --frontends 2"),
        (["up", "--workers", "-3"], "blackstart: --workers=-3: not a whole number"),
        (["up", "--workers", "100000"], "blackstart: --workers=100000: must be from 0 to 64"),
        (["up", "--workers", "9" * 40], "not a whole number; try: --workers 2"),
        (
            ["up", "etcd.toml"],
            "blackstart: TOPOLOGY=etcd.toml: topology files cannot be read yet; try: blackstart up",
        ),
        (["up", ""], "blackstart: TOPOLOGY=: topology files cannot be read yet; try: blackstart up"),
        (["up", "2", "2"], "blackstart: argument=2: unknown here; try: blackstart"),
        (["up", "etcd.toml", "--frontends", "1"], "blackstart: TOPOLOGY=etcd.toml: topology files"),
    ],
)
def test_bad_input_is_exit_2_with_the_thing_the_value_and_the_remedy(
    argv: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for module in (run_drill, up):
        monkeypatch.setattr(module, "Rehearsal", _begun)
    assert main([*argv, "--run-dir", str(tmp_path)]) == 2
    error = capfd.readouterr().err
    assert error.startswith("blackstart: ")
    assert said in error
    assert "; try: " in error
    assert error.count("\n") == 1
    assert "hunter2" not in error
    assert list(tmp_path.iterdir()) == [], "something was begun"


@pytest.mark.parametrize(
    ("argv", "counts"),
    [
        (["up"], (2, 2)),
        (["up", "--frontends", "3"], (3, 2)),
        (["up", "--workers", "0"], (2, 0)),
        (["drill"], (2, 2)),
    ],
)
def test_a_fleet_has_two_replicas_and_two_workers_where_nobody_says_otherwise(
    argv: list[str], counts: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    for module in (run_drill, up):
        monkeypatch.setattr(module, "Rehearsal", _begun)
        monkeypatch.setattr(
            module, "options_of", lambda _, *, frontends, workers: asked.append((frontends, workers))
        )
    assert main([*argv, "--run-dir", str(tmp_path)]) == 4
    assert asked == [counts]


def test_the_environments_postgres_is_named_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("BLACKSTART_POSTGRES", "oracle")
    assert main(["drill", "--run-dir", str(tmp_path)]) == 2
    assert "blackstart: BLACKSTART_POSTGRES=oracle: names no provider" in capfd.readouterr().err


def test_a_run_folder_that_is_a_file_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    assert main(["drill", "--run-dir", str(file)]) == 2
    assert f"blackstart: --run-dir={file}: is a file" in capfd.readouterr().err


@pytest.mark.parametrize("command", ["drill", "up"])
def test_an_empty_run_folder_is_not_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (run_drill, up):
        monkeypatch.setattr(module, "Rehearsal", _begun)
    code = main([command, "--run-dir", ""])
    error = capfd.readouterr().err
    assert "AssertionError" not in error, "begun in the current folder"
    assert error == "blackstart: --run-dir=: names no folder; try: --run-dir logs\n"
    assert code == 2


def test_a_postgres_that_does_not_answer_is_a_set_up_failure_without_its_password(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    url = "postgresql://u:hunter2@127.0.0.1:1/d?connect_timeout=2"
    assert main(["drill", "--postgres", url, "--run-dir", str(tmp_path)]) == 4
    error = capfd.readouterr().err
    assert "127.0.0.1:1" in error
    assert "; try: " in error
    assert "hunter2" not in error
    assert "Traceback" not in error
