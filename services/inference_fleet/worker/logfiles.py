"""The output of model processes: one file a process, a bounded number of them, each of bounded size."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path

_NAME = re.compile(r"(?P<model>.+)\.(?P<number>[0-9]{1,9})\.log")
KEPT_A_MODEL = 10
SIZE_LIMIT = 16 * 1024 * 1024
_TAIL = 2000


@dataclass(frozen=True)
class LogFolder:
    """`<model>.<n>.log` files; a number is never used twice, also not by a later worker on the same folder."""

    path: Path

    def last_number(self) -> int:
        """The highest number any model's file carries, 0 when there is none."""
        return max((number for _, number, _ in self._files()), default=0)

    def open(self, model: str, number: int) -> BinaryIO:
        """The file of a new process, opened for appending, with the model's oldest files taken away."""
        self.path.mkdir(parents=True, exist_ok=True)
        mine = sorted((n, path) for name, n, path in self._files() if name == model)
        for _, path in mine[: max(0, len(mine) - KEPT_A_MODEL + 1)]:
            path.unlink(missing_ok=True)
        return self.file(model, number).open("ab")

    def file(self, model: str, number: int) -> Path:
        """Where a process's output lies."""
        return self.path / f"{model}.{number}.log"

    def oversized(self, model: str, number: int) -> bool:
        """Whether a file has outgrown its limit."""
        path = self.file(model, number)
        return path.exists() and path.stat().st_size > SIZE_LIMIT

    def cut(self, model: str, number: int) -> None:
        """Cut a file down to the second half of its limit (blocking).

        The process appends, so what it writes next lands behind what is left. A line written during the cut
        may be lost, which beats a full disk.
        """
        with self.file(model, number).open("r+b") as file:
            file.seek(-SIZE_LIMIT // 2, os.SEEK_END)
            rest = file.read()
            file.seek(0)
            file.truncate()
            file.write(b"[cut to the last %d bytes]\n" % len(rest) + rest)

    def tail(self, model: str, number: int) -> str:
        """The last lines of a process, for the log line that tells of its end."""
        try:
            with self.file(model, number).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL))
                return file.read().decode(errors="replace").strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"(its output cannot be read: {error.strerror})"

    def _files(self) -> list[tuple[str, int, Path]]:
        if not self.path.is_dir():
            return []
        found = ((_NAME.fullmatch(path.name), path) for path in self.path.iterdir())
        return [(match["model"], int(match["number"]), path) for match, path in found if match]
