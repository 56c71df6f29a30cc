"""A pid names a process only together with its start time and the boot it ran in: numbers come back, these do not."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple


class Stat(NamedTuple):
    """What `/proc/<pid>/stat` says of a process."""

    pid: int
    state: str
    parent: int
    group: int
    session: int
    terminal: int
    started: int  # clock ticks since boot


@dataclass(frozen=True, order=True)
class Identity:
    """Who a process is, for as long as the machine is up: its pid and its start time in clock ticks since boot."""

    pid: int
    started: int

    def __str__(self) -> str:
        """`pid 4711`, which is what a person can look for."""
        return f"pid {self.pid}"


@cache
def boot_id() -> str:
    """The kernel's name for this boot: identities of another boot are all dead."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def ticks_now() -> int:
    """The time since boot in the unit of start times."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def read_stat(pid: int) -> Stat | None:
    """The process's stat, a zombie's too; `None` when there is no such process."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()  # the command before it may hold spaces and brackets
    return Stat(
        pid=pid,
        state=fields[0].decode("ascii"),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        terminal=int(fields[4]),
        started=int(fields[19]),
    )


def identity_of(pid: int) -> Identity | None:
    """Who has this pid now; `None` when nobody has, or only a zombie."""
    stat = read_stat(pid)
    return None if stat is None or stat.state in "ZX" else Identity(pid, stat.started)
