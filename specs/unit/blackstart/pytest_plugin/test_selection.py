"""Only the whole suite may be judged for what it does not hold; anything that narrows a run makes it a selection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from blackstart.pytest_plugin.selection import is_unselected

if TYPE_CHECKING:
    from pathlib import Path


def config(
    tmp_path: Path, *args: str, testpaths: tuple[str, ...] = ("specs",), **options: Any
) -> pytest.Config:
    (tmp_path / "specs").mkdir(exist_ok=True)
    made = SimpleNamespace(
        getoption=lambda name, default=None: options.get(name, default),
        getini=lambda _: list(testpaths),
        rootpath=tmp_path,
        args=list(args),
        invocation_params=SimpleNamespace(dir=tmp_path),
    )
    return cast("pytest.Config", made)


def test_the_test_paths_however_they_are_given_are_the_whole(tmp_path: Path) -> None:
    for argument in ("specs", "specs/", "./specs", str(tmp_path / "specs")):
        assert is_unselected(config(tmp_path, argument), deselected=0)


def test_a_project_without_test_paths_is_whole_at_its_root(tmp_path: Path) -> None:
    assert is_unselected(config(tmp_path, str(tmp_path), testpaths=()), deselected=0)
    assert not is_unselected(config(tmp_path, "specs", testpaths=()), deselected=0)


@pytest.mark.parametrize("argument", ["specs/unit", "specs/test_x.py::test_one", "."])
def test_a_path_that_is_another_is_a_selection(tmp_path: Path, argument: str) -> None:
    assert not is_unselected(config(tmp_path, argument), deselected=0)


@pytest.mark.holds("B-256")
@pytest.mark.parametrize(
    "options",
    [
        {"keyword": "tunnel"},
        {"markexpr": "production"},
        {"lf": True},
        {"stepwise": True},
        {"deselect": ["specs/x"]},
        {"ignore": ["specs/x"]},
        {"ignore_glob": ["*"]},
        {"collectonly": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_an_option_that_narrows_is_a_selection(tmp_path: Path, options: dict[str, Any]) -> None:
    assert not is_unselected(config(tmp_path, "specs", **options), deselected=0)


def test_whatever_deselected_something_makes_it_a_selection(tmp_path: Path) -> None:
    assert not is_unselected(config(tmp_path, "specs"), deselected=1)
