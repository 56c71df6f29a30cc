"""One run outside pytest: its folder, guardian, journal and Postgres, ended in the right order whatever happens.

SIGINT, SIGTERM and SIGHUP become one exception in the main thread, once; a second signal during the clean-up is not
heard, so that nothing is left behind by an impatient key. A `kill -9` is the guardian's business.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import signal
import sys
import time
from contextlib import ExitStack
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

from blackstart.cluster.capabilities import seen_at_a_glance
from blackstart.cluster.waiting import Waiter, current, installed
from blackstart.core.commands import BadInput, SetUpFailed
from blackstart.core.deadline import Looks
from blackstart.infra import BadPostgresOption, Infra, InfraError
from blackstart.process import Guardian, GuardianGone, Spawner, end_unguarded
from blackstart.process.guard import GUARDIAN_LOG
from blackstart.process.procfs import cmdline_of
from blackstart.process.strays import Sought, find
from blackstart.record import Journal, Run, RunFolderError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import FrameType, TracebackType

    from blackstart.process import GuardianLease, Handle

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_EVERY_S = 0.02
_SHARED_ENDS_WITHIN_S = 20.0  # Postgres is asked first and may write its checkpoint


class Interrupted(KeyboardInterrupt):
    """Somebody asked this command to end."""


class Rehearsal:
    """What a command needs to bring up a fleet. `spec` is `drill` or `up`."""

    def __init__(
        self, *, spec: str, postgres: str, run_dir: Path, seed: int, thing: str = "--postgres"
    ) -> None:
        """Everything that can be wrong with the options is told here, before anything starts."""
        self.spec = spec
        self.seed = seed
        self._stack = ExitStack()
        self._lease: GuardianLease | None = None
        self._shared: list[Handle] = []
        self._finished = False
        self._left = False
        if sys.stdout is None:
            raise SetUpFailed("stdout", "closed", "nobody could read what is told", remedy="> FILE")
        self._factor = _time_factor()
        try:
            self.run = Run.create(
                run_dir,
                argv=["blackstart", *sys.argv[1:]],
                seed=seed,
                versions={"python": platform.python_version(), "blackstart": version("blackstart")},
                capabilities=seen_at_a_glance(),
            )
        except RunFolderError as wrong:
            raise BadInput("--run-dir", wrong.value, wrong.problem, remedy=wrong.remedy) from wrong
        self._postgres = postgres
        self._thing = thing
        self.journal: Journal
        self.spawner: Spawner
        self.infra: Infra

    def __enter__(self) -> Self:
        """Start the guardian and open what hangs on it."""
        try:
            self.journal = self._stack.enter_context(Journal(self.run, writer="cli"))
            self.journal.write("run-start", spec=self.spec, argv=sys.argv[1:], seed=self.seed)
            self._stack.enter_context(installed(Waiter(factor=self._factor, sink=self._waited)))
            Guardian.start(self.run)
            self._stack.callback(self._take_exits, within=_SHARED_ENDS_WITHIN_S)
            self._lease = self._stack.enter_context(Guardian.connect(self.run))
            spawner = Spawner(self.run, self.journal, self._lease, shared=self._shared)
            self.spawner = self._stack.enter_context(spawner)
            self._stack.callback(self._leave)
            self.infra = Infra(self.run, self.spawner, self._postgres, thing=self._thing)
            self._stack.callback(self.infra.close)
        except (BadPostgresOption, GuardianGone) as wrong:
            self._stack.close()
            raise _as_command_error(wrong) from wrong
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End infrastructure, then leave the guardian, which ends whatever is left. A run always says how it ended.

        Where it cannot, since its folder was removed or the disk is full, everything is ended first and that is the error.
        """
        lost: OSError | None = error if isinstance(error, OSError) else None
        try:
            if not self._finished:
                asked = kind is not None and issubclass(kind, KeyboardInterrupt)
                self.finish("interrupted" if asked else "harness-failure", error=repr(error))
        except OSError as wrong:
            lost = wrong
        finally:
            self._stack.close()
        lost = lost or self.journal.lost
        if lost is not None and (error is None or isinstance(error, OSError | KeyboardInterrupt)):
            raise self._without_evidence(lost) from lost

    def finish(self, verdict: str, **data: Any) -> None:
        """Write how it ended, once."""
        self._finished = True
        self.journal.write("run-end", spec=self.spec, verdict=verdict, **data)
        self.run.finish(verdict)

    def _without_evidence(self, lost: OSError) -> Exception:
        folder = self.run.dir
        if not folder.is_dir():
            told, remedy = "was removed while the run went on", "leave it until the run has ended"
        elif lost.errno in {errno.ENOSPC, errno.EDQUOT}:
            told, remedy = "its disk is full", "free space there, or another --run-dir"
        else:
            return lost
        return SetUpFailed(
            "run folder", folder, f"{told}; everything is ended, evidence is missing", remedy=remedy
        )

    def require_guarded(self) -> None:
        """`GuardianGone` once the guardian is not there any more, unless we have left it already."""
        if self._lease is not None and not self._left and not self._lease.alive:
            raise GuardianGone(
                f"run {self.run.id}: its guardian (pid {self._lease.guardian_pid}) ended by itself, so everything"
                f" was ended; try: read {self.run.dir / GUARDIAN_LOG} and start a new run"
            )

    def _leave(self) -> None:
        """The guardian ends whatever is left; where it is gone, that is ours to do."""
        if self._lease is None or self._left:
            return
        self._left = True
        guarded = self._lease.alive
        self._lease.close()
        if not guarded:
            ended = end_unguarded(self.run.id, self.spawner.ledger)
            for text in (*ended.survivors, *ended.failed):
                self.journal.note("harness-failure", spec=self.spec, text=text)

    def end_shared(self, *, within: float) -> list[str]:
        """End what the run shares; what could not be ended, and the processes that carry its tag after so many seconds."""
        self.require_guarded()
        troubles = list(self.infra.close())
        self._leave()
        deadline = time.monotonic() + within
        for turn in Looks(until=deadline, every_s=_LOOK_EVERY_S, clock=time.monotonic, sleep=time.sleep):
            left = find(Sought(run=self.run.id))
            if not left or turn.over:
                break
        self._take_exits(within=max(0.0, deadline - time.monotonic()))
        return troubles + [f"pid {stat.pid} ({cmdline_of(stat.pid)})" for stat in left]

    def _take_exits(self, *, within: float) -> None:
        """What the run shares is ended by the guardian, and only we, its parent, can journal how it ended."""
        deadline = time.monotonic() + within
        for handle in self._shared:
            handle.wait(within=max(0.0, deadline - time.monotonic()))

    def _waited(self, outcome: str, data: dict[str, Any]) -> None:
        self.journal.write("wait", spec=self.spec, outcome=outcome, **data)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Inside, the first signal raises `Interrupted` and every later one is ignored, also after the block.

    Where no signal came the handlers of before are back, since an ignored signal would be inherited by every child of
    whoever called.
    """
    heard = False

    def first(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        nonlocal heard
        heard = True
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted(signal.Signals(number).name)

    before = {number: signal.signal(number, first) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if heard else handler)


@contextlib.contextmanager
def setting_up() -> Iterator[None]:
    """Inside, infrastructure that cannot be had ends the command with its own line and exit code."""
    try:
        yield
    except (InfraError, GuardianGone) as wrong:
        raise _as_command_error(wrong) from wrong


def _time_factor() -> float:
    """The factor in force; one that cannot be meant is told before anything is made."""
    try:
        return current().factor
    except ValueError as wrong:
        name, _, rest = str(wrong).partition("=")
        value, _, rest = rest.partition(": ")
        told, _, remedy = rest.partition("; try: ")
        raise BadInput(name, value, told, remedy=remedy) from wrong


def _as_command_error(wrong: InfraError | GuardianGone) -> BadInput | SetUpFailed:
    if isinstance(wrong, GuardianGone):
        value, _, rest = str(wrong).removeprefix("run ").partition(": ")
        told, _, remedy = rest.partition("; try: ")
        return SetUpFailed("guardian", value, told, remedy=remedy)
    kind = BadInput if isinstance(wrong, BadPostgresOption) else SetUpFailed
    thing, _, rest = str(wrong).partition("=")
    value, _, rest = rest.partition(": ")
    told, _, remedy = rest.partition("; try: ")
    return kind(thing, value, told, remedy=remedy)


def drawn_seed(given: int | None) -> int:
    """The seed asked for, or a new one."""
    return int.from_bytes(os.urandom(4)) if given is None else given


def say(text: str) -> None:
    """A line on stdout, out at once: somebody may be reading through a pipe."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
