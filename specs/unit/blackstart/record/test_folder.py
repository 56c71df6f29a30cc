"""A run's folder: its own, complete from the first moment, and free of secrets."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from blackstart.record import Run, RunFolderError

SECRET = "hunter2-9f8e7d"


def create(parent: Path, argv: list[str] | None = None) -> Run:
    return Run.create(parent, argv=argv or ["pytest"], seed=7, versions={"python": "3.11"}, capabilities={})


def test_a_new_run_says_who_it_is_and_latest_points_to_it(tmp_path: Path) -> None:
    first, second = create(tmp_path / "logs"), create(tmp_path / "logs")
    assert first.id != second.id
    assert (tmp_path / "logs" / "latest").resolve() == second.dir
    facts = json.loads((second.dir / "run.json").read_text())
    assert facts["run"] == second.id == second.dir.name
    assert (facts["seed"], facts["verdict"]) == (7, None)
    assert (second.dir / "journal").is_dir()


def test_secrets_never_reach_run_json(tmp_path: Path) -> None:
    run = create(tmp_path, ["up", "--token", SECRET, f"--postgres=postgres://u:{SECRET}@h/db"])
    run.update(providers={"postgres": {"url": f"postgres://u:{SECRET}@h/db", "password": SECRET}})
    run.finish("passed")
    text = (run.dir / "run.json").read_text()
    assert SECRET not in text
    assert "postgres://u:***@h/db" in text


def test_an_attached_run_is_the_same_one_by_its_folder_or_by_latest(tmp_path: Path) -> None:
    run = create(tmp_path)
    assert Run.attach(run.dir).id == run.id
    assert Run.attach(tmp_path / "latest").dir == run.dir


def test_updates_of_several_writers_are_all_kept(tmp_path: Path) -> None:
    run = create(tmp_path)
    writers = [
        threading.Thread(target=Run.attach(run.dir).update, kwargs={"providers": {f"p{number}": number}})
        for number in range(12)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert run.facts()["providers"] == {f"p{number}": number for number in range(12)}


def test_a_finished_run_carries_its_verdict(tmp_path: Path) -> None:
    run = create(tmp_path)
    run.finish("failed")
    facts = run.facts()
    assert facts["verdict"] == "failed"
    assert facts["ended"] >= facts["began"]


def test_each_spec_has_a_folder_of_its_own(tmp_path: Path) -> None:
    run = create(tmp_path)
    names = ["a/b", "a-b", "a:b", "journal", "x" * 300, "drill"]
    folders = {run.spec_dir(name) for name in names}
    assert len(folders) == len(names)
    assert all(folder.parent == run.dir and folder.is_dir() for folder in folders)
    assert run.spec_dir("journal") != run.dir / "journal"


def test_a_parent_that_is_a_file_is_named_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "logs"
    file.write_text("mine")
    for parent in (file, file / "deeper"):
        with pytest.raises(RunFolderError, match=r"is a file, or lies under one; try: --run-dir"):
            create(parent)
    assert file.read_text() == "mine"


def test_a_parent_that_cannot_be_written_is_named_with_the_remedy() -> None:
    with pytest.raises(
        RunFolderError, match=r"run folder=/proc/.*; try: --run-dir with a folder you may write"
    ) as raised:
        create(Path("/proc/blackstart"))
    assert raised.value.thing == "run folder"
    with pytest.raises(RunFolderError, match="cannot be written to"):
        create(Path("/proc/self"))


def test_a_path_with_nul_is_named() -> None:
    with pytest.raises(RunFolderError, match="holds no NUL"):
        create(Path("logs\0"))


def test_a_file_called_latest_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "latest").write_text("mine")
    with pytest.raises(RunFolderError, match="not a link that a run made"):
        create(tmp_path)
    assert (tmp_path / "latest").read_text() == "mine"


def test_a_folder_that_is_no_run_cannot_be_attached(tmp_path: Path) -> None:
    for text in ("", "{}", "[]", '{"run": 7}'):
        (tmp_path / "run.json").write_text(text)
        with pytest.raises(RunFolderError, match=r"run\.json"):
            Run.attach(tmp_path)
    with pytest.raises(RunFolderError, match="holds no readable"):
        Run.attach(tmp_path / "missing")
