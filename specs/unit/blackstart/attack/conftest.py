"""A small project with one guard, for the attack's own specs."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.attack import Mutation

if TYPE_CHECKING:
    from pathlib import Path

GUARD = """
import os
import subprocess
import sys


def is_held(owner):
    return owner != ""


def ask_a_child(owner):
    code = f"import pkg.guard as guard; print(guard.is_held({owner!r}))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def ask_a_child_elsewhere(owner):
    code = f"import sys; sys.path.insert(0, {os.environ['ELSEWHERE']!r}); import pkg.guard as guard; print(guard.is_held({owner!r}))"
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout.strip()
"""
SPECS = """
import os
import pytest
from pkg import guard

def test_nobody_holds_it():
    assert guard.is_held("") is False, "an empty owner holds nothing"

def test_somebody_holds_it():
    assert guard.is_held("frontend-0")

def test_a_child_says_the_same():
    assert guard.ask_a_child("") == "False", "an empty owner holds nothing in a child either"

def test_a_child_elsewhere_says_the_same():
    assert guard.ask_a_child_elsewhere("") == "False"

@pytest.fixture
def prepared():
    assert guard.is_held("") is False, "an empty owner holds nothing"

def test_with_set_up(prepared):
    assert guard.is_held("") is False, "an empty owner holds nothing"

@pytest.mark.parametrize("owner", ["", "frontend-0"])
def test_with_parameters(owner):
    assert guard.is_held(owner) is (owner != ""), "an empty owner holds nothing"

def test_was_never_green():
    assert guard.is_held("") is True

def test_is_skipped_on_the_mutant():
    if guard.is_held(""):
        pytest.skip("no reason to look")
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project as a fresh git tree, with everything untracked."""
    files = {
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib"]\n',
        "src/pkg/__init__.py": "",
        "src/pkg/guard.py": GUARD,
        "specs/test_guard.py": SPECS,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setenv("ELSEWHERE", str(tmp_path / "src"))
    return tmp_path


@pytest.fixture
def row() -> Any:
    """`row("name", replace="...", spec="test_...")` with the guard's condition as what is found."""

    def make(
        name: str, *, replace: str = "True", spec: str, text: str = "an empty owner holds nothing"
    ) -> Mutation:
        return Mutation(
            name=name,
            file="src/pkg/guard.py",
            find='owner != ""',
            replace=replace,
            spec=f"specs/test_guard.py::{spec}",
            text=text,
        )

    return make
