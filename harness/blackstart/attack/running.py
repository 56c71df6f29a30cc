"""One pytest process as its campaign sees it: it leads a group, is awaited unreaped, ended with its group, reaped last."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Interrupted(Exception):
    """The campaign was told to stop."""


class Running(Protocol):
    """A process that leads its own session. Its pid stays its own until it is reaped, so it is ended before that."""

    @property
    def pid(self) -> int:
        """Of the process and its group."""

    def reap(self) -> int:
        """Waits for its end and returns its exit code; negative for a signal."""


@dataclass
class Stop:
    """Told once; every pytest process that runs is then ended, and none starts any more."""

    _told: threading.Event = field(default_factory=threading.Event)
    _running: list[Running] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def told(self) -> bool:
        """Whether to stop."""
        return self._told.is_set()

    def tell(self) -> None:
        """Stop now."""
        with self._lock:
            self._told.set()
            for process in self._running:
                end_group(process)

    def add(self, process: Running) -> None:
        """A process started; ended at once when the stop was told meanwhile."""
        with self._lock:
            self._running.append(process)
            if self._told.is_set():
                end_group(process)

    def remove(self, process: Running) -> None:
        """A process is about to be reaped."""
        with self._lock:
            self._running.remove(process)


class Cold:
    """Started as a user would: `python -m pytest`."""

    def __init__(
        self, arguments: Sequence[str], *, executable: str, cwd: Path, env: Mapping[str, str], output: Path
    ) -> None:
        with output.open("wb") as sink:
            self._process = subprocess.Popen(
                [executable, "-m", "pytest", *arguments],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def reap(self) -> int:
        """Its exit code."""
        return self._process.wait()


def run_out(process: Running, *, within: float, stop: Stop) -> tuple[bool, int]:
    """Whether it ended in time, and its exit code; nothing of its group runs any more. `Interrupted` when told to stop."""
    stop.add(process)
    try:
        in_time = ended(process.pid, within=within)
    finally:
        end_group(process)
        stop.remove(process)
        code = process.reap()
    if stop.told:
        raise Interrupted
    return in_time, code


def end_group(process: Running) -> None:
    """Kills the whole group of a process that is not reaped yet; harmless where it has ended."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def ended(pid: int, *, within: float) -> bool:
    """Whether the process ended in time; it is not reaped here."""
    descriptor = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(within * 1000))
    finally:
        os.close(descriptor)
