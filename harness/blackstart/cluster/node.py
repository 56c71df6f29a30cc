"""One process of a cluster as a thing that can be started, hurt and started again, and never mistaken for another.

A node leases its ports once and keeps them over every restart, because whoever dials it read its address once. Its
data folder stays over a warm restart and is wiped by a cold one, which is refused for any folder outside the run.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from blackstart.cluster.lifecycle import NodeBusy, Operation, State, check
from blackstart.cluster.readiness import wait_ready
from blackstart.net import assert_listener
from blackstart.process.errors import HarnessFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from blackstart.core.topology import Place, Service
    from blackstart.process import Death, Exit, Handle, LogFile, Spawner
    from blackstart.record import Journal


class WipeRefused(RuntimeError):
    """A cold restart would delete a folder that is not this run's own."""


class UnexpectedExit(AssertionError):
    """A graceful end with an exit status the service does not declare."""


class UnexpectedDeath(AssertionError):
    """Processes that ended although nobody asked them to."""


class Node:
    """One node: `start`, `stop`, `kill`, `pause`, `resume`, `restart`. One operation at a time; the rest are refused."""

    def __init__(
        self,
        *,
        service: Service,
        place: Place,
        spawner: Spawner,
        journal: Journal,
        run_dir: Path,
        log_dir: Path,
        spec: str,
        budget: Callable[[str], float],
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """`budget` gives the seconds for `ready`, `stop` and `death`; `cancelled` ends a wait for readiness early."""
        self.service = service
        self.place = place
        self._spawner = spawner
        self._journal = journal
        self._run_dir = run_dir
        self._log_dir = log_dir
        self._spec = spec
        self._budget = budget
        self._cancelled = cancelled
        self._lock = threading.Lock()
        self._busy: Operation | None = None
        self._state = State.IDLE
        self._handle: Handle | None = None
        self._env: dict[str, str] = {}

    def __repr__(self) -> str:
        """Name, state, incarnation and pid: what a failing assertion needs to say."""
        pid = self._handle.pid if self._handle else None
        return f"<Node {self.name} {self.state} incarnation={self.incarnation} pid={pid} ports={self.place.ports}>"

    @property
    def name(self) -> str:
        """`<service>-<index>`."""
        return self.place.name

    @property
    def index(self) -> int:
        """Its number within its service."""
        return self.place.index

    @property
    def incarnation(self) -> int:
        """How often it has been started; 0 before the first time."""
        return self.place.incarnation

    @property
    def port(self) -> int:
        """Its first port."""
        return self.place.port

    @property
    def url(self) -> str:
        """`http://HOST:PORT` of its first port, or what the service's `scheme` says."""
        return f"{self.service.scheme}://{self.place.address}"

    @property
    def state(self) -> State:
        """Where it stands now; a process that ended unasked reads `died` from the first look on."""
        if self._state in {State.READY, State.PAUSED} and self._handle is not None and not self._handle.alive:
            return State.DIED
        return self._state

    @property
    def alive(self) -> bool:
        """Whether its process runs (a zombie does not)."""
        return self._handle is not None and self._handle.alive

    @property
    def died(self) -> bool:
        """Whether it ended although nobody asked it to."""
        return self.state is State.DIED

    @property
    def handle(self) -> Handle:
        """The process of the newest incarnation, ended or not."""
        if self._handle is None:
            raise NodeBusy(f"{self.name}: was never started; try: start it first")
        return self._handle

    @property
    def pid(self) -> int:
        """The pid of the newest incarnation."""
        return self.handle.pid

    @property
    def log(self) -> LogFile:
        """The log file of the newest incarnation."""
        return self.handle.log

    def describe_death(self) -> str:
        """How it ended, with exit status and the end of its log."""
        if self._handle is None:
            return f"{self.name}: was never started"
        return self._handle.crash_report()

    def set_env(self, **variables: str) -> None:
        """Variables added to the command's own from the next start on (a fault's preload library, an override)."""
        self._env.update(variables)

    def start(self) -> None:
        """Start the process and wait until it is ready; a crash before that is raised at once."""
        with self._operation(Operation.START):
            self._end_left_behind()
            self._start()

    def stop(self, *, escalate: bool = False) -> Exit:
        """Ask it to end and wait; a stop that needed SIGKILL raises unless `escalate`, as does a wrong exit status."""
        with self._operation(Operation.STOP):
            return self._stop(escalate=escalate)

    def kill(self) -> Death:
        """SIGKILL; returns when the process is dead and its ports are free."""
        with self._operation(Operation.KILL):
            return self._kill()

    def pause(self) -> None:
        """SIGSTOP: it keeps its sockets and answers nobody."""
        with self._operation(Operation.PAUSE):
            self.handle.pause()
            self._state = State.PAUSED

    def resume(self) -> None:
        """SIGCONT."""
        with self._operation(Operation.RESUME):
            self.handle.resume()
            self._state = State.READY

    def restart(self, *, cold: bool = False, graceful: bool = False) -> None:
        """End it (SIGKILL, or a stop when `graceful`) and start it on the same ports; `cold` wipes its data folder.

        Whether the folder may be wiped is asked before anything is ended.
        """
        with self._operation(Operation.RESTART):
            if cold:
                refuse_outside(self.place.data_dir, self._run_dir)
            if self.alive:
                _ = self._stop(escalate=False) if graceful else self._kill()
            else:
                self._end_left_behind()
            if cold and not self.service.keeps_data:
                wipe(self.place.data_dir, self._run_dir)
            self._start()

    def _end_left_behind(self) -> None:
        """A process that ended by itself may have left children, on its ports and in its data folder."""
        if self._handle is not None and self._state is not State.IDLE:
            self._kill()

    def _start(self) -> None:
        self.place = replace(self.place, incarnation=self.place.incarnation + 1)
        self.place.data_dir.mkdir(parents=True, exist_ok=True)
        command = self.service.command(self.place)
        began = time.monotonic()
        self._state = State.STARTING
        try:
            self._handle = self._spawner.spawn(
                node=self.name,
                argv=list(command.argv),
                env={**command.env, **self._env},
                cwd=command.cwd or self.place.data_dir,
                log_dir=self._log_dir,
                spec=self._spec,
                incarnation=self.incarnation,
                ports=self.place.ports,
            )
            wait_ready(
                self.place,
                self._handle,
                self.service.ready,
                within=self._budget("ready"),
                cancelled=self._cancelled,
            )
            for port in self.place.ports[: self.service.listens]:
                assert_listener(port, self._handle)
        except BaseException as error:
            self._state = State.FAILED
            self._end_unready(error)
            raise
        self._state = State.READY
        self._journal.write(
            "ready",
            spec=self._spec,
            node=self.name,
            incarnation=self.incarnation,
            pid=self.pid,
            seconds=round(time.monotonic() - began, 3),
        )

    def _end_unready(self, error: BaseException) -> None:
        """Not ready is not running: nobody would watch it from here on. Why it is not ready stays the error."""
        if self.alive:
            try:
                self.handle.kill(within=self._budget("death"))
            except HarnessFailure as also:
                error.add_note(f"and it could not be ended: {also}")

    def _stop(self, *, escalate: bool) -> Exit:
        self._state = State.STOPPING
        try:
            ended = self.handle.stop(
                within=self._budget("stop"), escalate=escalate, signal=self.service.stop_signal
            )
        finally:
            if not self.alive:  # escalated or not, it has ended because it was asked to
                self._state = State.IDLE
        status = ended.code if ended.signal is None else -ended.signal
        if status not in self.service.exit_codes and not (escalate and ended.signal):
            expected = ", ".join(str(code) for code in sorted(self.service.exit_codes))
            raise UnexpectedExit(
                f"{self.name}: a graceful stop ended with {ended}, expected exit status {expected}; "
                f"try: exit_codes = {{{status}}} in the service, if that is how it ends\n"
                f"{self.describe_death()}"
            )
        return ended

    def _kill(self) -> Death:
        death = self.handle.kill(within=self._budget("death"))
        self._state = State.IDLE
        return death

    @contextlib.contextmanager
    def _operation(self, operation: Operation) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            raise NodeBusy(
                f"{self.name}: cannot {operation} during a {self._busy}; try: wait until it has ended"
            )
        try:
            self._busy = operation
            check(self.name, operation, self.state)
            yield
        finally:
            self._busy = None
            self._lock.release()


def refuse_outside(folder: Path, run_dir: Path) -> None:
    """Raise `WipeRefused` unless `folder` lies, links followed, strictly inside an absolute, existing run folder."""
    remedy = "try: give the node a data folder inside the run folder"
    if not run_dir.is_absolute() or not run_dir.is_dir():
        raise WipeRefused(f"run folder {run_dir}: is not an absolute path of a folder that exists; {remedy}")
    if not folder.is_absolute():
        raise WipeRefused(f"data folder {folder}: a relative path is not wiped; {remedy}")
    inside, root = folder.resolve(), run_dir.resolve()
    if inside == root or root not in inside.parents:
        raise WipeRefused(f"data folder {folder}: lies outside the run folder {root}; {remedy}")


def wipe(folder: Path, run_dir: Path) -> None:
    """Empty a data folder: delete it with everything in it and make it anew."""
    refuse_outside(folder, run_dir)
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
