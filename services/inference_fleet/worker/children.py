"""One child process: its exit awaited by pidfd, its ending bounded, and nothing of its group left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from inference_fleet.settings import Deadline


class Child:
    """A running program in a process group of its own; made by `start` on the event loop's thread.

    That thread must be the process's main thread: the kernel ends the child when the thread that started it ends.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self._process = process
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(process.pid)
        self._loop.add_reader(self._pidfd, self._on_exit)

    @classmethod
    def start(cls, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: BinaryIO) -> Child:
        """Start a program with its output in `log`; `OSError` when the system will not."""
        process = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        return cls(process)

    @property
    def alive(self) -> bool:
        """Whether it has not exited."""
        return not self._over.is_set()

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        code = self._process.returncode
        if code is None:
            return "still runs"
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"

    async def exited(self) -> None:
        """Return once it has ended."""
        await self._over.wait()

    async def stop(self, *, deadline: Deadline) -> bool:
        """SIGTERM, then SIGKILL at the deadline; whether it ended without the latter."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(deadline.remaining_s):
                await self._over.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._over.wait()
            return False
        return True

    def kill_now(self) -> None:
        """SIGKILL and reap, without the loop's help: for the way out of a cancelled supervisor."""
        if self.alive:
            self._signal(signal.SIGKILL)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            self._on_exit()

    def _on_exit(self) -> None:
        if self._over.is_set():
            return
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        # whatever it started and left in its group; once it is reaped, the number may be a stranger's
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._over.set()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)
