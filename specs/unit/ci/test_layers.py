"""What the contracts of `pyproject.toml` promise of the pure cores, and that they cover each of them."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
CORES = {"blackstart.core", "inference_fleet.tunnel.yamux", "inference_fleet.tunnel.websocket"}
WORLD = {"asyncio", "socket", "subprocess", "threading", "time"}


def contract() -> dict[str, Any]:
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    [found] = [each for each in rules["contracts"] if each["name"].startswith("a pure core has no ")]
    assert isinstance(found, dict)
    return found


def files_of(module: str) -> list[Path]:
    place = ROOT / ("harness" if module.startswith("blackstart") else "services") / module.replace(".", "/")
    return sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_every_pure_core_is_under_the_contract_with_all_it_must_not_reach() -> None:
    assert set(contract()["source_modules"]) >= CORES, "a pure core is not held"
    assert set(contract()["forbidden_modules"]) >= WORLD, "a core may reach the world"


def test_types_are_checked_in_every_python_file_that_is_kept() -> None:
    checked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]["files"]
    kept = {path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.py"), *(ROOT / "ci").rglob("*.py"))}
    assert "conftest.py" in kept, "the control: they are found"
    assert kept - set(checked) == set(), "a file whose types nobody checks"


def test_no_pure_core_imports_a_clock_a_thread_a_process_a_socket_or_a_loop() -> None:
    read = [path for module in sorted(CORES) for path in files_of(module)]
    assert len(read) > len(CORES), "the control: there are files"
    reached = {path.name: sorted(found) for path in read if (found := imported(path) & WORLD)}
    assert reached == {}, "a pure core reaches the world"
