"""The wall clock of one live process, moved while it runs (libfaketime); its monotonic clock stays true.

The process is started with `ClockFile.environment`; what stands in the file then is its offset, read anew at every look at
the clock. Evidence comes from the process itself: what it wrote (a log stamp) or answered, never from the file.

Known of libfaketime 0.9.10: timers of asyncio, threads, locks and sockets go on as they should, but `time.sleep` of a Python
process fails with EINVAL while it is skewed (it sleeps until an absolute monotonic time). Services here do not call it.
A killed process leaves two small objects in shared memory, named by its pid; they are swept when the pid is nobody's.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart.cluster.capabilities import find_faketime
from blackstart.core.fault import Evidence, Finding
from blackstart.faults.fault import Fault
from blackstart.process.errors import HarnessFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SHARED = Path("/dev/shm")  # noqa: S108 - where the C library keeps shared memory, by name
_LEFTOVER = re.compile(r"faketime_shm_(\d+)|sem\.faketime_sem_(\d+)")
_TRUE = "+0"


def sweep_leftovers(folder: Path = _SHARED) -> int:
    """Remove what killed processes left of libfaketime in shared memory; how many objects."""
    swept = 0
    for path in folder.iterdir() if folder.is_dir() else ():
        named = _LEFTOVER.fullmatch(path.name)
        if named is None or Path(f"/proc/{named[1] or named[2]}").exists():
            continue
        try:
            path.unlink(missing_ok=True)
        except PermissionError:  # another user's
            continue
        swept += 1
    return swept


class ClockFile:
    """The offset of one node's wall clock, in a file that outlives its incarnations."""

    def __init__(self, path: Path, *, library: Path | None = None) -> None:
        found = library or find_faketime()
        if found is None:
            raise HarnessFailure(
                "clock: libfaketime.so.1 is not installed; try: apt-get install faketime, or ci/system"
            )
        self.path = path
        self._library = found
        sweep_leftovers()
        self.set(0.0)

    def environment(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """What the process must be started with; a library that is preloaded already stays."""
        preloaded = (os.environ if environ is None else environ).get("LD_PRELOAD", "")
        return {
            "LD_PRELOAD": f"{self._library}:{preloaded}".rstrip(":"),
            "FAKETIME_TIMESTAMP_FILE": str(self.path),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # its work-around for an old glibc stalls threads a quarter second
        }

    def set(self, offset_s: float) -> None:
        """Move the clock, all at once: a reader sees the old offset or the new one."""
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        draft.write_text(f"{offset_s:+.6f}\n" if offset_s else f"{_TRUE}\n", encoding="ascii")
        draft.replace(self.path)


class ClockSkew(Fault):
    """Move a process's wall clock by `offset_s`; `read` gives the seconds since the epoch that *it* believes in.

    `read` returns `None` while the process has shown no time since the fault was put in.
    """

    family = "clock"

    def __init__(
        self,
        clock: ClockFile,
        *,
        node: str,
        offset_s: float,
        read: Callable[[], float | None],
        tolerance_s: float = 30.0,
        now: Callable[[], float] = time.time,
    ) -> None:
        if abs(offset_s) <= 2 * tolerance_s:
            raise ValueError(
                f"offset_s={offset_s:g}: cannot be told from a true clock within tolerance_s={tolerance_s:g};"
                f" try: offset_s={3 * tolerance_s:g}"
            )
        self._clock = clock
        self._node = node
        self._offset_s = offset_s
        self._read = read
        self._tolerance_s = tolerance_s
        self._now = now

    def describe(self) -> str:
        """`clock of frontend-0 by +3600 s`."""
        return f"clock of {self._node} by {self._offset_s:+g} s"

    def undo(self) -> tuple[str, ...]:
        """The file says the true time again."""
        return ("sh", "-c", f'printf "{_TRUE}\\n" >"$1"', "sh", str(self._clock.path))

    def inject(self) -> None:
        """From the next look on the process sees another time."""
        self._clock.set(self._offset_s)

    def confirm(self) -> Evidence:
        """Its own time is off by what was asked."""
        return self._compare(self._offset_s)

    def lift(self) -> None:
        """From the next look on the process sees the true time."""
        self._clock.set(0.0)

    def confirm_lifted(self) -> Evidence:
        """Its own time is true again; a process that shows none is not held to be skewed."""
        return self._compare(0.0)

    def _compare(self, wanted_s: float) -> Evidence:
        believed = self._read()
        if believed is None:
            return Evidence(Finding.INCONCLUSIVE, f"{self._node} has shown no time")
        off_s = believed - self._now()
        seen = f"{self._node} is {off_s:+.1f} s off, {wanted_s:+g} s were wanted"
        right = abs(off_s - wanted_s) <= self._tolerance_s
        return Evidence(Finding.CONFIRMED if right else Finding.MISMATCH, seen)
