"""Whether a run is the whole suite: only then may it be judged for what it does not hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

_SELECTING = (
    "keyword",
    "markexpr",
    "lf",
    "stepwise",
    "stepwise_skip",
    "deselect",
    "ignore",
    "ignore_glob",
    "collectonly",
    "setuponly",
    "setupplan",
    "usepdb_collect",
)


def is_unselected(config: pytest.Config, *, deselected: int) -> bool:
    """No -k, -m, --lf, --deselect, --ignore and the like, and no path but those of `testpaths`."""
    if deselected or any(config.getoption(name, default=None) for name in _SELECTING):
        return False
    everything = {config.rootpath / path for path in config.getini("testpaths")} or {config.rootpath}
    asked = {_path_of(argument, config.invocation_params.dir) for argument in config.args}
    return asked == everything


def _path_of(argument: str, base: Path) -> Path:
    """The path of an argument; one that names a part of a file names no whole path."""
    return (base / argument).resolve()
