"""A process that cannot be mistaken for another: held by pidfd, reaped by it, and never called alive as a zombie."""

from __future__ import annotations

import contextlib
import os
import select
import signal as signals
import threading
import time
from typing import TYPE_CHECKING, NoReturn

from blackstart.core.deadline import Looks
from blackstart.core.redact import redact_argv
from blackstart.process.errors import NotConfirmed, NotDead, ProcessDied, StopEscalated
from blackstart.process.exits import Death, Exit, Spawned, signal_name
from blackstart.process.procfs import environ_of
from blackstart.process.sockets import holders, is_free
from blackstart.process.strays import Sought, end_all, find, signal_all, wait_gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from blackstart.process.logfile import LogFile
    from blackstart.process.procfs import Stat
    from blackstart.record import Identity, Journal, Ledger

CONFIRM_WITHIN_S = 5.0
_LOOK_EVERY_S = 0.005
_STOPPED = "Tt"


class Handle:
    """A child of this process. Made by `Spawner.spawn` alone; asked and hurt from any thread.

    | act                | signal goes to                      | returns when                                       |
    |--------------------|-------------------------------------|----------------------------------------------------|
    | `kill`             | its group, then whatever escaped it | all of them are dead and its ports are free        |
    | `stop`             | the process, as in production       | the same; raises `StopEscalated` if it took SIGKILL |
    | `pause`, `resume`  | its group and whatever escaped it   | the kernel says that all are stopped (running)     |
    | `signal`           | the process                         | at once                                            |
    """

    def __init__(self) -> None:
        raise TypeError("Handle: cannot be made by hand; try: Spawner.spawn(...)")

    _made: Spawned
    _journal: Journal
    _ledger: Ledger
    _exit: Exit | None
    _paused: bool
    _sent: list[str]
    _lock: threading.Lock
    log: LogFile

    def __repr__(self) -> str:
        return f"<Handle {self.name} pid={self.pid} {self._exit or 'running'} argv={self._made.argv[0]!r}>"

    def __del__(self) -> None:
        pidfd = getattr(self, "_pidfd", -1)
        if pidfd >= 0:
            os.close(pidfd)

    @property
    def pid(self) -> int:
        """Its number: to show, not to signal."""
        return self._made.identity.pid

    @property
    def identity(self) -> Identity:
        """Its number and start time."""
        return self._made.identity

    @property
    def node(self) -> str:
        """Which node it is an incarnation of."""
        return self._made.node

    @property
    def incarnation(self) -> int:
        """Which start of the node it is, from 1."""
        return self._made.incarnation

    @property
    def name(self) -> str:
        """`<node>.<incarnation>`."""
        return f"{self.node}.{self.incarnation}"

    @property
    def argv(self) -> tuple[str, ...]:
        """What was executed."""
        return self._made.argv

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports it was given."""
        return self._made.ports

    @property
    def alive(self) -> bool:
        """Whether it runs (or is paused). A zombie has ended: the pidfd says so before anybody has reaped it."""
        return self._reap(0.0) is None

    @property
    def exit(self) -> Exit | None:
        """How it ended; `None` while it runs."""
        return self._reap(0.0)

    @property
    def environ(self) -> dict[str, str]:
        """The environment it really has, from the kernel."""
        return environ_of(self.pid)

    def wait(self, *, within: float) -> Exit | None:
        """Its end, or `None` if it still runs after so many seconds."""
        return self._reap(max(0.0, within))

    def pause_until_end(self, within: float) -> None:
        """Sleep so many seconds, or until it ends."""
        self._reap(max(0.0, within))

    def members(self) -> list[Stat]:
        """Itself and all that came of it and still run, those with a session of their own included."""
        return find(self._sought())

    def signal(self, number: int) -> None:
        """Send a signal to the process itself; `ProcessDied` if it has ended."""
        self._note_signal(number, to="process")
        if not self._send(number, group=False):
            self._raise_dead(f"cannot send it {signal_name(number)}")

    def kill(self, *, within: float) -> Death:
        """SIGKILL to it and all that came of it. Fine on one that has ended: what it left behind is ended then."""
        began = time.monotonic()
        deadline = began + within
        self._note_signal(signals.SIGKILL, to="group")
        self._send(signals.SIGKILL, group=True)
        ended = self._dead(deadline, within)
        dead_after_s = time.monotonic() - began
        self._ports_free(deadline, within)
        free_after_s = time.monotonic() - began if self.ports else dead_after_s
        self._settle("killed")
        return Death(exit=ended, dead_after_s=dead_after_s, ports_free_after_s=free_after_s)

    def stop(self, *, within: float, escalate: bool = False, signal: int = signals.SIGTERM) -> Exit:
        """Ask the process to end, as an init system does, and wait for it, its children and its ports.

        Raises:
            StopEscalated: SIGKILL was needed after `within` seconds and `escalate` is false. It is dead all the same.
        """
        deadline = time.monotonic() + within
        if self.alive:
            self._note_signal(signal, to="process")
            self._send(signal, group=False)
            if self._paused:
                self._resume_quietly()
        ended = self._reap(max(0.0, deadline - time.monotonic()))
        left = self.members()
        if ended is not None and wait_gone(left, until=deadline):
            self._ports_free(time.monotonic() + within, within)
            self._settle("stopped")
            return ended
        text = (
            f"{self.name} (pid {self.pid}): still ran {within:g} s after {signal_name(signal)}"
            if ended is None
            else f"{self.name}: ended with {ended} and left {', '.join(f'pid {stat.pid}' for stat in left)} running"
        )
        report = self.log.tail()
        # how long it was given to end by itself is no measure of how long the kernel takes
        death = self.kill(within=max(within, CONFIRM_WITHIN_S))
        if not escalate:
            raise StopEscalated(
                f"{text}; SIGKILL was needed; try: a larger budget, or escalate=True where that is meant\n{report}"
            )
        return death.exit

    def pause(self) -> None:
        """SIGSTOP to it and all that came of it, confirmed by the kernel's own word."""
        self._note_signal(signals.SIGSTOP, to="group")
        if not self._send(signals.SIGSTOP, group=True):
            self._raise_dead("cannot pause it")
        self._paused = True
        self._until_all("stopped", signals.SIGSTOP, lambda stat: stat.state in _STOPPED)

    def resume(self) -> None:
        """SIGCONT to it and all that came of it, confirmed by the kernel's own word."""
        self._note_signal(signals.SIGCONT, to="group")
        if not self._send(signals.SIGCONT, group=True):
            self._raise_dead("cannot resume it")
        self._paused = False
        self._until_all("running", signals.SIGCONT, lambda stat: stat.state not in _STOPPED)

    def crash_report(self) -> str:
        """What a person needs after an unexpected end: how it ended, what it was, and the end of its log."""
        ended = self.exit
        state = (
            f"still runs as pid {self.pid}" if ended is None else f"ended with {ended} (was pid {self.pid})"
        )
        lines = [
            f"{self.name}: {state}",
            f"  command {' '.join(redact_argv(self.argv))}",
            f"  signals {', '.join(self._sent) or 'none'} sent by us",
            f"  log     {self.log.path}",
            *(f"  | {line}" for line in self.log.tail().splitlines() or ["(the log is empty)"]),
        ]
        if ended is not None:
            lines += [f"  port {port} is held by {holder}" for port in self.ports for holder in holders(port)]
        return "\n".join(lines)

    def describe_death(self) -> str:
        """The same, as waits ask for it."""
        return self.crash_report()

    def _sought(self) -> Sought:
        made = self._made
        folders = () if made.folder is None else ((made.folder, made.identity.started),)
        return Sought(run=made.run_id, spawn=made.charge.id, leaders=(made.identity,), folders=folders)

    def _reap(self, within: float) -> Exit | None:
        with self._lock:
            if self._exit is not None or _readable(self._pidfd, 0.0):
                return self._exit or self._collect()
            if not within:
                return None
            waiting = os.dup(self._pidfd)  # another thread may reap it meanwhile and close the first
        try:
            if not _readable(waiting, within):
                return None
        finally:
            os.close(waiting)
        return self._reap(0.0)

    def _collect(self) -> Exit:
        """With the lock held and the process ended: take its status, once."""
        info = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        if info is None:  # cannot be: without WNOHANG it waits
            raise NotConfirmed(f"{self.name}: the kernel gave no exit status")
        if info.si_code == os.CLD_EXITED:
            self._exit = Exit(code=info.si_status)
        else:
            self._exit = Exit(signal=info.si_status, core=info.si_code == os.CLD_DUMPED)
        os.close(self._pidfd)
        self._pidfd = -1
        if self._journal.closed:
            return self._exit
        self._journal.note(
            "exit",
            spec=self._made.spec,
            node=self.node,
            incarnation=self.incarnation,
            pid=self.pid,
            code=self._exit.code,
            signal=self._exit.signal,
            text=str(self._exit),
        )
        return self._exit

    _pidfd: int

    def _send(self, number: int, *, group: bool) -> bool:
        """Signal it while it is certainly ours: not yet reaped, so its number cannot belong to anybody else."""
        with self._lock:
            if self._exit is not None:
                return False
            if group:
                try:
                    os.killpg(self.pid, number)
                except ProcessLookupError:
                    return False
            else:
                try:
                    signals.pidfd_send_signal(self._pidfd, number)
                except ProcessLookupError:
                    return False
        return True

    def _dead(self, deadline: float, within: float) -> Exit:
        ended = self._reap(max(0.0, deadline - time.monotonic()))
        outlived = end_all(self._sought(), within=max(0.0, deadline - time.monotonic()))
        if ended is None or outlived:
            states = (
                ", ".join(f"pid {stat.pid} in state {stat.state}" for stat in outlived) or f"pid {self.pid}"
            )
            raise NotDead(
                f"{self.name}: {states} not dead {within:g} s after SIGKILL; try: a larger budget, or look what the kernel waits for"
            )
        return ended

    def _ports_free(self, deadline: float, within: float) -> None:
        for port in self.ports:
            for turn in _looks(deadline):
                if is_free(port):
                    break
                if turn.over:
                    held = ", ".join(str(holder) for holder in holders(port)) or "nobody that listens"
                    raise NotDead(
                        f"{self.name}: dead, but port {port} is not free after {within:g} s: held by {held}; try: end that process"
                    )

    def _until_all(self, word: str, number: int, holds: Callable[[Stat], bool]) -> None:
        for turn in _looks(time.monotonic() + CONFIRM_WITHIN_S):
            members = self.members()
            if not members or not self.alive:
                self._raise_dead(f"ended before it was {word}")
            wrong = [stat for stat in members if not holds(stat)]
            if not wrong:
                return
            signal_all(wrong, number)
            if turn.over:
                states = ", ".join(f"pid {stat.pid} is {stat.state}" for stat in wrong)
                raise NotConfirmed(f"{self.name}: not {word} within {CONFIRM_WITHIN_S:g} s: {states}")

    def _resume_quietly(self) -> None:
        self._paused = False
        signal_all(self.members(), signals.SIGCONT)

    def _settle(self, how: str) -> None:
        if not self._ledger.closed:
            with contextlib.suppress(
                OSError
            ):  # a full disk: the guardian looks for it once more and finds nothing
                self._ledger.ended(self._made.charge, reason=how)

    def _note_signal(self, number: int, *, to: str) -> None:
        self._sent.append(signal_name(number))
        if self._journal.closed:
            return
        self._journal.note(
            "signal",
            spec=self._made.spec,
            node=self.node,
            incarnation=self.incarnation,
            pid=self.pid,
            signal=signal_name(number),
            to=to,
        )

    def _raise_dead(self, what: str) -> NoReturn:
        raise ProcessDied(f"{self.name}: {what}: it is not running\n{self.crash_report()}")


def make_handle(made: Spawned, *, journal: Journal, ledger: Ledger, log: LogFile) -> Handle:
    """The one way to a `Handle`; the spawner's."""
    handle = object.__new__(Handle)
    handle._made = made
    handle._pidfd = made.pidfd
    handle._journal = journal
    handle._ledger = ledger
    handle._exit = None
    handle._paused = False
    handle._sent = []
    handle._lock = threading.Lock()
    handle.log = log
    log.watched_by(handle)
    return handle


def _looks(until: float) -> Looks:
    return Looks(until=until, every_s=_LOOK_EVERY_S, clock=time.monotonic, sleep=time.sleep)


def _readable(pidfd: int, within: float) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(within * 1000))
