"""The scratch copy is what a commit would hold, and a change in it is noticed by its content."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from blackstart.attack.scratch import Layout, copy_tree, layout_of, replace_file, tree_files
from blackstart.core.commands import SetUpFailed

if TYPE_CHECKING:
    from pathlib import Path


def test_tracked_and_untracked_files_are_copied_and_ignored_ones_are_not(project: Path) -> None:
    (project / ".gitignore").write_text("logs/\n")
    (project / "logs").mkdir()
    (project / "logs" / "big").write_text("x")
    subprocess.run(["git", "-C", str(project), "add", "src"], check=True)
    (project / "src" / "pkg" / "new.py").write_text("")
    assert set(tree_files(project)) == {
        ".gitignore",
        "pyproject.toml",
        "specs/test_guard.py",
        "src/pkg/__init__.py",
        "src/pkg/guard.py",
        "src/pkg/new.py",
    }


def test_a_folder_git_does_not_know_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetUpFailed, match="git cannot list it"):
        tree_files(tmp_path / "nowhere")


def test_the_layout_knows_sources_packages_and_modules(project: Path) -> None:
    layout = layout_of(project)
    assert layout == Layout(root=project.resolve(), sources=("src",), packages=("pkg",))
    assert layout.module_of("src/pkg/guard.py") == "pkg.guard"
    assert layout.module_of("src/pkg/__init__.py") == "pkg"
    assert layout.module_of("src/pkg/__main__.py") == "", "importing it would act"
    assert layout.module_of("specs/test_guard.py") == ""
    assert layout.module_of("src/pkg/schema.sql") == ""


def test_a_change_of_the_same_size_in_the_same_second_is_noticed(project: Path, tmp_path: Path) -> None:
    """Python trusts a compiled file by time and size, and so does pytest with what it has rewritten."""
    layout, copy = layout_of(project), tmp_path / "copy"
    copy_tree(layout, tree_files(project), copy)
    guard = copy / "src/pkg/guard.py"
    mode, sound = guard.stat().st_mode, guard.read_text()
    mutant = sound.replace('owner != ""', 'owner == ""')

    def told() -> str:
        path = os.pathsep.join([str(copy / "src"), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [sys.executable, "-c", "from pkg.guard import is_held; print(is_held(''))"],
            env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    answers = [told()]
    for text in (mutant, sound, mutant, sound):
        replace_file(guard, text)
        answers.append(told())
    assert answers == ["False\n", "True\n", "False\n", "True\n", "False\n"]
    assert guard.stat().st_mode == mode
