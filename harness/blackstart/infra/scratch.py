"""The run's folder for data that must be quick and is worth nothing afterwards: in memory where there is room.

It holds data folders and the server's password, so only this user can read it, it is no part of the evidence, and it is
owed an end in the run's ledger before it is made.
"""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from filelock import FileLock, Timeout

from blackstart.infra.embedded import memory_or
from blackstart.infra.errors import InfraError
from blackstart.record import ChargeKind, Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from blackstart.record import Run

PREFIX = "blackstart-"
_WHERE = "infra.json"
_LOCK = "infra.lock"


class Scratch:
    """The same folder for every process of the run, made by whichever comes first."""

    def __init__(self, run: Run, *, within_s: float) -> None:
        self._run = run
        self._within_s = within_s
        with self._locked(run.dir / _LOCK):
            self.folder = self._find() or self._make()

    @classmethod
    def found(cls, run: Run, *, within_s: float) -> Self | None:
        """The folder if some process of the run has made it."""
        return cls(run, within_s=within_s) if (run.dir / _WHERE).exists() else None

    def locked(self, what: str) -> AbstractContextManager[None]:
        """One process of the run at a time; the lock of a killed process is free."""
        return self._locked(self.folder / f"{what}.lock")

    @contextmanager
    def _locked(self, name: Path) -> Iterator[None]:
        try:
            with FileLock(name, timeout=self._within_s):
                yield
        except Timeout as error:
            raise InfraError(
                "infra",
                self._run.id,
                wrong=f"another process of this run held {name} for {self._within_s:g} s",
                remedy=f"look who does: fuser {name}",
            ) from error

    def read(self, name: str) -> dict[str, Any] | None:
        """A JSON object another process left, or `None`."""
        try:
            told: dict[str, Any] = json.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return None
        return told

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Leave a JSON object; a reader sees all of it or none."""
        draft = self.folder / f".{name}.{os.getpid()}"
        file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as out:
            json.dump(content, out)
        draft.replace(self.folder / name)

    def count(self, name: str, *, server: str) -> None:
        """One more database was made on a server of this run."""
        with (self.folder / f"{server}.databases").open("a", encoding="ascii") as out:
            out.write(name + "\n")

    def counted(self, server: str) -> int:
        """How many were made on it by all processes of the run."""
        try:
            return (self.folder / f"{server}.databases").read_text(encoding="ascii").count("\n")
        except FileNotFoundError:
            return 0

    def _find(self) -> Path | None:
        try:
            return Path(json.loads((self._run.dir / _WHERE).read_bytes())["scratch"])
        except FileNotFoundError:
            return None

    def _make(self) -> Path:
        folder = memory_or(self._run.dir) / f"{PREFIX}{self._run.id}"
        argv = removal(folder)
        with Ledger(self._run.dir) as ledger:
            charge = ledger.intend(ChargeKind.UNDO, user=None, argv=argv)
            folder.mkdir(mode=0o711)  # data folders in it are 0700; `nobody` must be able to pass through
            ledger.began(charge)
        (self._run.dir / _WHERE).write_text(json.dumps({"scratch": str(folder)}), encoding="utf-8")
        self._run.update(scratch=str(folder))
        return folder


def removal(folder: Path) -> tuple[str, ...]:
    """The command that removes a folder of ours; any other path is refused here, before it could reach `rm`."""
    if not folder.is_absolute() or ".." in folder.parts or not folder.name.removeprefix(PREFIX):
        raise ValueError(
            f"folder={folder}: not a folder this run made; try: an absolute path ending in {PREFIX}RUN"
        )
    if not folder.name.startswith(PREFIX):
        raise ValueError(f"folder={folder}: its name does not begin with {PREFIX}")
    return ("rm", "-rf", "--one-file-system", "--", str(folder))
