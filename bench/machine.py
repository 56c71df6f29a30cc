"""What the kernel knows: CPU seconds and memory of a process, and what was set where a figure was taken."""

from __future__ import annotations

import os
import platform
import resource
import time
from pathlib import Path
from typing import Final

_CPU_CLOCK: Final = 2  # CPUCLOCK_SCHED: all threads of a process, those that ended too, in nanoseconds
_SYSCTL: Final = Path("/proc/sys")


def cpu_seconds(pid: int) -> float:
    """What a process has used so far, to the nanosecond (`/proc/PID/stat` counts hundredths of a second)."""
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


def own_bytes(pid: int) -> int:
    """The memory of a process that is nobody else's and no file's, counted page by page.

    The counter in `/proc/PID/statm` may be off by a quarter of a megabyte for each core.
    """
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    line = next(line for line in rollup.splitlines() if line.startswith("Anonymous:"))
    return int(line.split()[1]) * 1024


def raise_file_limit() -> None:
    """As many descriptors as this process may have: a thousand idle streams are a thousand sockets."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def machine_facts() -> dict[str, str]:
    """What every report says first."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "kernel": platform.release(),
        "cores": str(len(os.sched_getaffinity(0))),
        "congestion control": _sysctl("net/ipv4/tcp_congestion_control"),
        "tcp_rmem": _sysctl("net/ipv4/tcp_rmem"),
        "tcp_wmem": _sysctl("net/ipv4/tcp_wmem"),
        "load before": " ".join(f"{value:.2f}" for value in os.getloadavg()),
    }


def _sysctl(name: str) -> str:
    try:
        return " ".join((_SYSCTL / name).read_text(encoding="ascii").split())
    except OSError as error:
        return f"unknown ({error.strerror})"
