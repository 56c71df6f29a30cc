"""A file of lines that survives `kill -9`: every line is one append, so nothing is lost and no two writers mix.

A line that came out torn (a full disk, a killed writer) is ended, so that the next one is not part of it.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

from blackstart.core.closing import Closing

if TYPE_CHECKING:
    from pathlib import Path


class Appending(Closing):
    """One process's pen for the file at `path`; base of those that say what a line is."""

    def __init__(self, path: Path, *, mode: int) -> None:
        """Opens the file, made with `mode` when it is not there."""
        self.path = path
        self._pen = threading.RLock()
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)
        self._end_a_torn_line()

    @property
    def closed(self) -> bool:
        """Whether nothing can be written any more."""
        return self._file < 0

    def close(self) -> None:
        """Put the pen down; what was written stays. A second time is fine."""
        with self._pen:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def _open(self) -> int:
        """The descriptor. Raises `ValueError` when the file is closed."""
        if self._file < 0:
            raise ValueError(f"{self.path}: is closed; try: write before the run is finished")
        return self._file

    def _append(self, line: bytes) -> None:
        """One whole line, on file when this returns. Raises `OSError` when the disk took only a part of it."""
        with self._pen:
            written = os.write(self._open(), line)
            if written != len(line):
                self._end_a_torn_line()
        if written != len(line):
            raise OSError(
                errno.ENOSPC,
                f"wrote {written} of {len(line)} bytes; try: free space on the disk",
                str(self.path),
            )

    def _contents(self) -> bytes:
        """All that is in the file, from the open descriptor: also after somebody has removed its folder."""
        with self._pen:
            return os.pread(self._open(), os.fstat(self._file).st_size, 0)

    def _end_a_torn_line(self) -> None:
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")
