"""One folder holds everything a run leaves, under a name no other run has; `latest` beside it points to the newest.

```
<parent>/<run id>/run.json        id, argv, versions, seed, capabilities, providers, verdict (redacted)
                  journal/*.jsonl one file a writing process
                  ledger.jsonl    what must be ended or undone
                  <spec>/         logs by node and incarnation
<parent>/latest -> <run id>
```
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from blackstart.core.names import safe_name
from blackstart.core.redact import redact_argv, redact_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_FACTS = "run.json"
_LOCK = "run.lock"
_LATEST = "latest"
_MERGED = ("versions", "capabilities", "providers")


class RunFolderError(ValueError):
    """A run folder that cannot be used. `thing`, `value`, `problem` and `remedy` are what an error line is made of."""

    def __init__(self, value: Path | str, problem: str, remedy: str) -> None:
        self.thing = "run folder"
        self.value = str(value)
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{self.thing}={self.value}: {problem}; try: {remedy}")


class Run:
    """A run's folder. Make one with `create`; every other process of the run takes `attach`."""

    def __init__(self, folder: Path, *, run_id: str) -> None:
        self.dir = folder
        self.id = run_id

    def __repr__(self) -> str:
        return f"<Run {self.id} in {self.dir}>"

    @classmethod
    def create(
        cls,
        parent: Path,
        *,
        argv: Sequence[str],
        seed: int | str | None = None,
        versions: Mapping[str, str] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        providers: Mapping[str, Any] | None = None,
    ) -> Run:
        """A new folder under `parent` (made if missing), with `run.json` and `latest` in place."""
        parent = _usable_parent(parent)
        run_id, folder = _new_folder(parent)
        run = cls(folder, run_id=run_id)
        run._write(
            {
                "run": run_id,
                "argv": redact_argv([str(word) for word in argv]),
                "seed": seed,
                "versions": dict(versions or {}),
                "capabilities": dict(capabilities or {}),
                "providers": dict(providers or {}),
                "began": time.time(),
                "verdict": None,
            }
        )
        _point_latest(parent, run_id)
        return run

    @classmethod
    def attach(cls, folder: Path) -> Run:
        """The run that lives in `folder`, which may be `latest`."""
        try:
            folder = folder.resolve(strict=True)
            facts = json.loads((folder / _FACTS).read_bytes())
            run_id = facts["run"]
        except (OSError, ValueError, KeyError, TypeError) as wrong:
            raise RunFolderError(
                folder,
                f"holds no readable {_FACTS} ({wrong})",
                "the folder that a run printed as its evidence",
            ) from wrong
        if not isinstance(run_id, str):
            raise RunFolderError(folder, f"{_FACTS} gives no run id", "the folder that a run printed")
        return cls(folder, run_id=run_id)

    def spec_dir(self, spec: str) -> Path:
        """The folder of one spec (or `drill`, or `up`), made if missing; no two specs share one."""
        folder = self.dir / safe_name(spec)
        folder.mkdir(exist_ok=True)
        return folder

    def facts(self) -> dict[str, Any]:
        """What `run.json` says now."""
        facts: dict[str, Any] = json.loads((self.dir / _FACTS).read_bytes())
        return facts

    def update(self, **fields: Any) -> None:
        """Set fields of `run.json`; `versions`, `capabilities` and `providers` are merged, not replaced."""
        with self._locked():
            facts = self.facts()
            for name, value in fields.items():
                if name in _MERGED and isinstance(facts.get(name), dict) and isinstance(value, dict):
                    facts[name] |= value
                else:
                    facts[name] = value
            self._write(facts)

    def finish(self, verdict: str) -> None:
        """The run is over and this is what it came to."""
        self.update(verdict=str(verdict), ended=time.time())

    def _write(self, facts: Mapping[str, Any]) -> None:
        target = self.dir / _FACTS
        draft = self.dir / f".{_FACTS}.{os.getpid()}"
        draft.write_text(
            json.dumps(redact_value(dict(facts)), indent=1, default=str) + "\n", encoding="utf-8"
        )
        draft.replace(target)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with (self.dir / _LOCK).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _usable_parent(parent: Path) -> Path:
    if "\0" in str(parent):
        raise RunFolderError(repr(str(parent)), "a path holds no NUL", "--run-dir logs")
    parent = parent.absolute()
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as wrong:
        raise RunFolderError(parent, "is a file, or lies under one", "--run-dir with a folder") from wrong
    except OSError as wrong:
        raise RunFolderError(
            parent, f"cannot be made ({wrong.strerror})", "--run-dir with a folder you may write to"
        ) from wrong
    return parent


def _new_folder(parent: Path) -> tuple[str, Path]:
    while True:
        run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
        folder = parent / run_id
        try:
            folder.mkdir()
            (folder / "journal").mkdir()
        except FileExistsError:
            continue
        except OSError as wrong:
            raise RunFolderError(
                parent,
                f"cannot be written to ({errno.errorcode.get(wrong.errno or 0, '?')}: {wrong.strerror})",
                "--run-dir with a folder you may write to",
            ) from wrong
        return run_id, folder


def _point_latest(parent: Path, run_id: str) -> None:
    link = parent / _LATEST
    if link.exists() and not link.is_symlink():
        raise RunFolderError(link, "is not a link that a run made", "move it away, or another --run-dir")
    draft = parent / f".{_LATEST}.{run_id}"
    draft.symlink_to(run_id)
    draft.replace(link)
