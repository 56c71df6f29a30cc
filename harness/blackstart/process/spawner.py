"""Processes are started in one place, so that each is owed an end before it exists and none shares our terminal or pipes."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart.core.closing import Closing
from blackstart.core.names import safe_name
from blackstart.core.redact import redact_argv
from blackstart.process.errors import HarnessFailure, SpawnError
from blackstart.process.exits import Spawned, port_numbers
from blackstart.process.handle import make_handle
from blackstart.process.logfile import LogFile
from blackstart.process.procfs import RUN_TAG, SPAWN_TAG, TAGS, USER_TAG, read_stat, wait_executed
from blackstart.record import ChargeKind, Ending, Identity, Ledger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blackstart.process.exits import Leased
    from blackstart.process.guard import GuardianLease
    from blackstart.process.handle import Handle
    from blackstart.record import Journal, Run
    from blackstart.record.ledger import Charge

_EXECUTED_WITHIN_S = 0.5
_NOT_INHERITED = ("BLACKSTART_", "PYTEST_")


class Spawner(Closing):
    """Starts children for one user of a run. `user` is the pid that asks (`None` takes this process's)."""

    def __init__(
        self,
        run: Run,
        journal: Journal,
        guardian: GuardianLease,
        *,
        user: int | None = None,
        shared: list[Handle] | None = None,
    ) -> None:
        """`shared` is given the handles of what the run shares: the guardian ends those, their parent takes the status."""
        self._run = run
        self._journal = journal
        self._guardian = guardian
        self._user = os.getpid() if user is None else user
        self._shared = shared
        self.ledger = Ledger(run.dir)

    def close(self) -> None:
        """Spawn no more. Handles keep working but for the ledger; end them first."""
        self.ledger.close()

    def remark(self, text: str) -> None:
        """A line of the journal about what was met on the way to a process."""
        self._journal.write("mark", text=text)

    def spawn(
        self,
        *,
        node: str,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        log_dir: Path,
        spec: str,
        incarnation: int = 1,
        ports: Sequence[int] | Leased | None = None,
        ending: Ending = Ending.KILL,
        shared: bool = False,
        folder: Path | None = None,
        wrap: Sequence[str] = (),
    ) -> Handle:
        """Start `argv` and return its handle.

        Args:
            node: its name, also that of its log file.
            argv: an argument list, never a shell line.
            env: added to our own environment without `BLACKSTART_*` and `PYTEST_*`.
            cwd: its working folder, ours if not given.
            log_dir: where `<node>.<incarnation>.log` is appended to.
            spec: the spec, `drill` or `up` it belongs to.
            incarnation: which start of the node this is, from 1.
            ports: the numbers it will bind, or a lease; a kill waits until they are free.
            ending: how the guardian ends it when nobody else can.
            shared: belongs to the run and not to this user.
            folder: its data folder; with `Ending.POSTGRES` whatever works there is its (default `cwd`).
            wrap: words before `argv` (`strace -f -o FILE`) that execute it.

        Raises:
            GuardianGone: nobody would end it.
            SpawnError: the command could not be executed.
        """
        words = _checked_argv([*wrap, *argv] if not isinstance(argv, str) else argv)
        _check_names(node, incarnation)
        if taken := [name for name in TAGS if name in (env or {})]:
            raise ValueError(f"env: {', '.join(taken)} is the harness's to set; try: leave it out")
        numbers = port_numbers(ports)
        if ending is Ending.POSTGRES:
            folder = folder or cwd
            if folder is None:
                raise ValueError(f"{node}: Ending.POSTGRES needs to know its data folder; try: folder=...")
        held = None if folder is None else str(folder.resolve())
        user = None if shared else self._user
        log_dir.mkdir(parents=True, exist_ok=True)
        log = LogFile(log_dir / f"{node}.{incarnation}.log")
        charge = self.ledger.intend(
            ChargeKind.PROCESS, user=user, node=f"{node}.{incarnation}", ending=ending, folder=held
        )
        try:
            self._guardian.admit(charge.id)
        except HarnessFailure:
            self.ledger.ended(charge, reason="not admitted")
            raise
        child = self._execute(words, self._environment(env, user, charge), cwd, log, charge)
        try:
            identity = _identity(child.pid)
            charge = self.ledger.began(charge, identity)
            self._guardian.admit(charge.id)
            pidfd = os.pidfd_open(child.pid)
            wait_executed(child.pid, within=_EXECUTED_WITHIN_S)
        except BaseException:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            raise
        child.returncode = 0  # from here on the pidfd alone waits for it
        self._journal.write(
            "spawn",
            spec=spec,
            node=node,
            incarnation=incarnation,
            pid=child.pid,
            argv=redact_argv(words),
            cwd=cwd,
            ports=list(numbers),
            log=log.path,
            charge=charge.id,
            shared=shared,
        )
        made = Spawned(
            node=node,
            incarnation=incarnation,
            spec=spec,
            argv=tuple(words),
            identity=identity,
            pidfd=pidfd,
            charge=charge,
            run_id=self._run.id,
            ports=numbers,
            folder=held if ending is Ending.POSTGRES else None,
        )
        handle = make_handle(made, journal=self._journal, ledger=self.ledger, log=log)
        if shared and self._shared is not None:
            self._shared.append(handle)
        return handle

    def _environment(self, env: Mapping[str, str] | None, user: int | None, charge: Charge) -> dict[str, str]:
        base = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)}
        tags = {RUN_TAG: self._run.id, SPAWN_TAG: charge.id}
        if user is not None:
            tags[USER_TAG] = str(user)
        return base | {"PYTHONUNBUFFERED": "1"} | dict(env or {}) | tags

    def _execute(
        self, words: list[str], env: dict[str, str], cwd: Path | None, log: LogFile, charge: Charge
    ) -> subprocess.Popen[bytes]:
        try:
            with log.path.open("ab") as output:
                return subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    close_fds=True,
                    start_new_session=True,
                    cwd=cwd,
                    env=env,
                )
        except (OSError, ValueError) as wrong:
            self.ledger.ended(charge, reason=f"not started: {wrong}")
            raise SpawnError(
                f"{charge.node}: {words[0]!r} in {cwd or Path.cwd()} could not be started ({wrong}); try: whether it exists and may be executed"
            ) from wrong


def _identity(pid: int) -> Identity:
    stat = read_stat(pid)
    if stat is None:
        raise HarnessFailure(f"pid {pid}: vanished unreaped; try: not to ignore SIGCHLD in this process")
    return Identity(pid, stat.started)


def _checked_argv(argv: Sequence[str]) -> list[str]:
    if isinstance(argv, str | bytes):
        raise TypeError(f"argv={argv!r}: a shell line; try: a list of words")
    words = [os.fspath(word) for word in argv]
    if not words:
        raise ValueError("argv=[]: nothing to execute; try: a list of words")
    for word in words:
        if "\0" in word:
            raise ValueError(f"argv: {word!r} is no word of a command line; try: texts without NUL")
    return words


def _check_names(node: str, incarnation: int) -> None:
    if safe_name(node) != node:
        raise ValueError(f"node={node[:80]!r}: cannot name a file; try: {safe_name(node)!r}")
    if incarnation < 1:
        raise ValueError(f"incarnation={incarnation}: they count from 1; try: 1")
