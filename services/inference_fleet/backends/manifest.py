"""What a `model.toml` says, checked key by key before a worker shows itself to anybody."""

from __future__ import annotations

import logging
import re
import tomllib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from inference_fleet.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_log = logging.getLogger("blackstart.backends")
FILE = "model.toml"
MODELS_LIMIT = 256
_FILE_LIMIT = 64 * 1024
_ARGUMENTS_LIMIT = 256
_ARGUMENT_LIMIT = 4096
_PACE_LIMIT = 10_000
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_PATH = re.compile(r"/[!-~]{0,1023}")


class Backend(StrEnum):
    """Who runs a model."""

    BABBLER = "babbler"
    COMMAND = "command"


READY_PATHS = {Backend.BABBLER: "/healthz", Backend.COMMAND: "/v1/models"}


class ManifestError(ValueError):
    """A model that cannot be run; the text names file, key, value and remedy."""

    def __init__(self, file: Path, key: str, value: object, remedy: str) -> None:
        self.file = file
        self.key = key
        shown = repr(value)
        super().__init__(f"{file}: {key}={shown[:120]}: must be {remedy}")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """One model a worker serves.

    | key                 | default                                          | meaning                                 |
    |---------------------|--------------------------------------------------|-----------------------------------------|
    | `backend`           | required                                         | `babbler` or `command`                  |
    | `command`           | required for `command`, refused otherwise        | argv; see `backends.command`            |
    | `ready_path`        | `/healthz` (babbler), `/v1/models` (command)     | answers 2xx when the model may be asked |
    | `tokens_per_second` | 0                                                | the babbler's pace; 0 is unpaced        |
    | `seed`              | none                                             | the babbler's, for requests without one |
    """

    name: str
    folder: Path
    backend: Backend
    command: tuple[str, ...] = ()
    ready_path: str
    tokens_per_second: float = 0.0
    seed: int | None = None


def read_manifests(models_dir: Path) -> tuple[Manifest, ...]:
    """Every model of a folder, by name; the first wrong one raises `ManifestError`, and no folder at all `SettingsError`.

    A folder that is not there holds no models, and neither does one without `model.toml`: models arrive later.
    """
    if not models_dir.exists():
        _log.warning("%s does not exist: this worker serves no model", models_dir)
        return ()
    if not models_dir.is_dir():
        raise SettingsError("BLACKSTART_MODELS_DIR", models_dir, "a folder of model folders")
    folders = sorted(
        folder for folder in models_dir.iterdir() if folder.is_dir() and not folder.name.startswith(".")
    )
    for folder in folders:
        if not (folder / FILE).is_file():
            _log.warning("%s has no %s and is passed over", folder, FILE)
    manifests = tuple(read_manifest(folder) for folder in folders if (folder / FILE).is_file())
    if len(manifests) > MODELS_LIMIT:
        raise ManifestError(models_dir, "models", len(manifests), f"at most {MODELS_LIMIT} model folders")
    return manifests


def read_manifest(folder: Path) -> Manifest:
    """The model in one folder."""
    file = folder / FILE
    if not _NAME.fullmatch(folder.name):
        raise ManifestError(
            file,
            "name",
            folder.name,
            "a folder name of 1 to 128 letters, digits, dots, dashes or underscores, a letter or digit at either end",
        )
    table = _table(file)
    for key in table:
        if key not in _KEYS:
            raise ManifestError(file, key, table[key], f"removed: the keys are {', '.join(sorted(_KEYS))}")
    values = {key: _KEYS[key](file, value) for key, value in table.items()}
    if "backend" not in values:
        raise ManifestError(file, "backend", None, _BACKENDS)
    backend: Backend = values["backend"]
    manifest = Manifest(name=folder.name, folder=folder, **{"ready_path": READY_PATHS[backend], **values})
    _check_together(file, manifest, given=values)
    return manifest


def _table(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as opened:
            content = opened.read(_FILE_LIMIT + 1)
    except OSError as error:
        raise ManifestError(file, "file", error.strerror, "readable by the worker") from error
    if len(content) > _FILE_LIMIT:
        raise ManifestError(file, "file", f"{file.stat().st_size} bytes", f"at most {_FILE_LIMIT} bytes")
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise ManifestError(file, "file", str(error), "UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(file, "file", str(error), "TOML") from None
    except RecursionError:
        raise ManifestError(file, "file", "nested too deep", "a flat table of keys") from None


def _check_together(file: Path, manifest: Manifest, *, given: Mapping[str, Any]) -> None:
    if manifest.backend is Backend.BABBLER:
        if manifest.command:
            raise ManifestError(
                file, "command", list(manifest.command), 'removed, or backend must be "command"'
            )
        return
    if not manifest.command:
        raise ManifestError(file, "command", None, 'a list of strings for backend = "command"')
    if not any("{port}" in argument for argument in manifest.command):
        raise ManifestError(
            file,
            "command",
            list(manifest.command),
            "given {port} in one of its arguments: the worker chooses it",
        )
    if "seed" in given:
        raise ManifestError(file, "seed", manifest.seed, "removed: only the babbler takes it")
    spoken = any("{tokens_per_second}" in argument for argument in manifest.command)
    if "tokens_per_second" in given and not spoken:
        raise ManifestError(
            file,
            "tokens_per_second",
            manifest.tokens_per_second,
            "removed, or passed on as {tokens_per_second} in the command: nothing reads it as it stands",
        )


def _backend(file: Path, value: object) -> Backend:
    if value == "decider":
        raise ManifestError(file, "backend", value, f"{_BACKENDS}; this release has no decider yet")
    if not isinstance(value, str) or value not in list(Backend):
        raise ManifestError(file, "backend", value, _BACKENDS)
    return Backend(value)


def _command(file: Path, value: object) -> tuple[str, ...]:
    wanted = (
        f"a list of 1 to {_ARGUMENTS_LIMIT} strings, each 1 to {_ARGUMENT_LIMIT} characters, none of them NUL"
    )
    if not isinstance(value, list) or not 1 <= len(value) <= _ARGUMENTS_LIMIT:
        raise ManifestError(file, "command", value, wanted)
    for argument in value:
        if not isinstance(argument, str) or not 1 <= len(argument) <= _ARGUMENT_LIMIT or "\0" in argument:
            raise ManifestError(file, "command", argument, wanted)
    return tuple(value)


def _ready_path(file: Path, value: object) -> str:
    if not isinstance(value, str) or not _PATH.fullmatch(value):
        raise ManifestError(file, "ready_path", value, 'a path such as "/health"')
    return value


def _pace(file: Path, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _PACE_LIMIT:
        raise ManifestError(file, "tokens_per_second", value, f"a number from 0 (unpaced) to {_PACE_LIMIT}")
    return float(value)


def _seed(file: Path, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ManifestError(file, "seed", value, "a whole number")
    return value


_BACKENDS = " or ".join(f'"{backend}"' for backend in Backend)
_KEYS: dict[str, Callable[[Path, object], Any]] = {
    "backend": _backend,
    "command": _command,
    "ready_path": _ready_path,
    "tokens_per_second": _pace,
    "seed": _seed,
}
