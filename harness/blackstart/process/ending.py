"""How what a user owed is ended: each thing its own way, then strays, then a look that nothing is left.

Processes come first, because two seconds are all they get. Containers are told to go at the same time and waited for
last; undo commands run when no process is in their way, newest first.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from blackstart.core.deadline import Looks
from blackstart.process.procfs import TAGS, Stat, read_stat
from blackstart.process.strays import Sought, end_all, find, send, wait_gone
from blackstart.record.ledger import ChargeKind, Ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blackstart.record.ledger import Charge

POSTGRES_GRACE_S = 0.5
PROCESSES_WITHIN_S = 10.0
COMMAND_WITHIN_S = 30.0
UNSEEN_WITHIN_S = 0.5
_LOOK_EVERY_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What an ending came to."""

    found: int
    survivors: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    seconds: float = 0.0


def end_charges(charges: Sequence[Charge], *, sweep: Sought) -> Ended:
    """End these charges and every stray that `sweep` describes."""
    began = time.monotonic()
    removing = [_start(charge) for charge in charges if charge.kind is ChargeKind.CONTAINER]
    processes = [charge for charge in charges if charge.kind is ChargeKind.PROCESS]
    postgres = [charge for charge in processes if charge.ending is Ending.POSTGRES]
    everything = replace(
        sweep,
        leaders=tuple(charge.identity for charge in processes if charge.identity),
        folders=tuple((charge.folder, charge.since) for charge in postgres if charge.folder is not None),
    )
    found = len(find(everything))
    asked = _quit(postgres)
    others = replace(
        sweep,
        leaders=tuple(
            charge.identity
            for charge in processes
            if charge.identity and charge.ending is not Ending.POSTGRES
        ),
        spare=sweep.spare | {stat.pid for stat in asked},
    )
    end_all(others, within=PROCESSES_WITHIN_S)
    wait_gone(asked, until=time.monotonic() + POSTGRES_GRACE_S)
    survivors = end_all(everything, within=PROCESSES_WITHIN_S)
    if any(charge.identity is None for charge in processes):
        survivors = _end_unseen(everything)
    failed = [_finish(charge, command) for charge, command in removing]
    failed += [_finish(*_start(charge)) for charge in reversed(charges) if charge.kind is ChargeKind.UNDO]
    return Ended(
        found=found,
        survivors=tuple(f"pid {stat.pid} in state {stat.state}" for stat in survivors),
        failed=tuple(text for text in failed if text),
        seconds=time.monotonic() - began,
    )


def _quit(postgres: Sequence[Charge]) -> list[Stat]:
    """Ask each postmaster for an immediate shutdown, which reaches its children where no group does."""
    asked = []
    for charge in postgres:
        if charge.identity is None or not send(charge.identity, signal.SIGQUIT):
            continue
        send(charge.identity, signal.SIGCONT)  # a paused one would not hear of it
        stat = read_stat(charge.identity.pid)
        if stat is not None and stat.started == charge.identity.started:
            asked.append(stat)
    return asked


def _end_unseen(sought: Sought) -> list[Stat]:
    """A user killed in the middle of a spawn: its child has no tag until it has executed, so look for a while."""
    until = time.monotonic() + UNSEEN_WITHIN_S
    for turn in Looks(until=until, every_s=_LOOK_EVERY_S, clock=time.monotonic, sleep=time.sleep):
        survivors = [] if turn.over else end_all(sought, within=PROCESSES_WITHIN_S)
        if survivors or turn.over:
            break
    return survivors


def _start(charge: Charge) -> tuple[Charge, subprocess.Popen[bytes] | str]:
    env = {name: value for name, value in os.environ.items() if name not in TAGS}
    try:
        return charge, subprocess.Popen(
            charge.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=env,
        )
    except OSError as wrong:
        return charge, f"{charge.kind} {' '.join(charge.argv)}: {wrong}"


def _finish(charge: Charge, command: subprocess.Popen[bytes] | str) -> str:
    """An empty text, or what went wrong."""
    if isinstance(command, str):
        return command
    with command:
        try:
            output, _ = command.communicate(timeout=COMMAND_WITHIN_S)
        except subprocess.TimeoutExpired:
            command.kill()
            return f"{charge.kind} {' '.join(charge.argv)}: not done within {COMMAND_WITHIN_S:g} s"
    if command.returncode == 0:
        return ""
    told = output.decode(errors="replace")[-500:].strip()
    return f"{charge.kind} {' '.join(charge.argv)}: exit status {command.returncode}: {told}"
