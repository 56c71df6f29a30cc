"""What the kernel says of processes, read from /proc: what a process was really given, not what the harness meant to give."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart.core.redact import redact_argv
from blackstart.record.identity import Identity, Stat, identity_of, read_stat

if TYPE_CHECKING:
    from collections.abc import Iterator

RUN_TAG = "BLACKSTART_RUN"
USER_TAG = "BLACKSTART_USER"
SPAWN_TAG = "BLACKSTART_SPAWN"
_NO_ENVIRON = b"\0\0"
_LOOK_EVERY_S = 0.0005
TAGS = (RUN_TAG, USER_TAG, SPAWN_TAG)


def pids() -> Iterator[int]:
    """Every process there is now."""
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                yield int(entry.name)


def scan() -> Iterator[Stat]:
    """Every process that is not a zombie, with what its stat says."""
    for pid in pids():
        stat = read_stat(pid)
        if stat is not None and stat.state not in "ZX":
            yield stat


def raw_environ(pid: int) -> bytes | None:
    """The environment a process was started with, between NULs; `None` when it is gone or may not be read."""
    try:
        return b"\0" + Path(f"/proc/{pid}/environ").read_bytes() + b"\0"
    except OSError:
        return None


def wait_executed(pid: int, *, within: float) -> None:
    """Return once the kernel shows the environment of a process that has just been started.

    Between the old program's end and the new one's first instruction there is none to see, and so no tag to find it by.
    """
    deadline = time.monotonic() + within
    while raw_environ(pid) == _NO_ENVIRON and time.monotonic() < deadline:
        stat = read_stat(pid)
        if stat is None or stat.state in "ZX":
            return
        time.sleep(_LOOK_EVERY_S)


def environ_of(pid: int) -> dict[str, str]:
    """The environment the process was really started with; `ProcessLookupError` when there is no such process."""
    raw = raw_environ(pid)
    if raw is None:
        raise ProcessLookupError(f"pid {pid}: its environment cannot be read; try: a process that is alive")
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def cwd_of(pid: int) -> str | None:
    """The working folder of a process; `None` when it is gone or may not be asked."""
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return None


def cmdline_of(pid: int) -> str:
    """The command line for people, redacted; the short name for one that has none."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        if words != [b""]:
            return " ".join(redact_argv([os.fsdecode(word) for word in words]))
        return f"[{Path(f'/proc/{pid}/comm').read_text(errors='replace').strip()}]"
    except OSError:
        return "gone"


__all__ = [
    "RUN_TAG",
    "SPAWN_TAG",
    "TAGS",
    "USER_TAG",
    "Identity",
    "Stat",
    "cmdline_of",
    "cwd_of",
    "environ_of",
    "identity_of",
    "pids",
    "raw_environ",
    "read_stat",
    "scan",
    "wait_executed",
]
