"""The program of one model process: our own babbler, or any OpenAI-compatible server a `model.toml` names.

| in `command`            | becomes                                                          |
|-------------------------|------------------------------------------------------------------|
| `{port}`                | the loopback port to listen on; chosen anew for each process     |
| `{name}`                | the model's name, which requests carry as `model`                |
| `{folder}`              | the model's folder, which is also the working folder             |
| `{data_dir}`            | a folder of the model's own that lives as long as the worker's   |
| `{tokens_per_second}`   | the key of that name                                             |
| `{python}`              | the interpreter the worker runs on                               |
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from inference_fleet.backends import lifeline
from inference_fleet.backends.manifest import FILE, Backend, Manifest, ManifestError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PASSED_ON = ("BLACKSTART_RUN", "BLACKSTART_USER", "BLACKSTART_TIMINGS", "BLACKSTART_TIMING_")

_PLACEHOLDER = re.compile(r"\{[a-z_]+\}")


def argv(manifest: Manifest, *, port: int, data_dir: Path, parent_pid: int) -> list[str]:
    """The command line of one process of a model; the process ends when `parent_pid` does."""
    if manifest.backend is Backend.BABBLER:
        return _babbler(manifest, port=port, data_dir=data_dir, parent_pid=parent_pid)
    given = {
        "{port}": str(port),
        "{name}": manifest.name,
        "{folder}": str(manifest.folder),
        "{data_dir}": str(data_dir),
        "{tokens_per_second}": f"{manifest.tokens_per_second:g}",
        "{python}": sys.executable,
    }
    guard = [sys.executable, "-I", "-S", str(Path(lifeline.__file__)), str(parent_pid)]
    return [*guard, *(_filled(argument, given) for argument in manifest.command)]


def check_program(manifest: Manifest) -> None:
    """Refuse a command whose program is not there, before the worker shows itself."""
    if manifest.backend is not Backend.COMMAND:
        return
    program = (
        manifest.command[0].replace("{python}", sys.executable).replace("{folder}", str(manifest.folder))
    )
    found = (manifest.folder / program).resolve() if "/" in program else shutil.which(program)
    if found is None or not os.access(found, os.X_OK):
        raise ManifestError(
            manifest.folder / FILE, "command", program, "a program on PATH, or the path of an executable file"
        )


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a model process may know: everything but this product's settings, which hold secrets."""
    return {
        variable: value
        for variable, value in environ.items()
        if not variable.startswith("BLACKSTART_") or variable.startswith(_PASSED_ON)
    }


def _babbler(manifest: Manifest, *, port: int, data_dir: Path, parent_pid: int) -> list[str]:
    line = [sys.executable, "-P", "-m", "inference_fleet.backends.babbler", "serve"]
    line += ["--port", str(port), "--name", manifest.name, "--data-dir", str(data_dir)]
    line += ["--tokens-per-second", f"{manifest.tokens_per_second:g}", "--parent-pid", str(parent_pid)]
    return line if manifest.seed is None else [*line, "--seed", str(manifest.seed)]


def _filled(argument: str, given: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: given.get(found[0], found[0]), argument)
