"""What must be ended or undone even if everybody who knew of it is dead: written before the act, appended, never rewritten.

Each line is one step of one charge (`intend`, `began`, `ended`), written with a single append, so lines of several
processes never mix. Folding the lines gives each charge's last state; a charge that never `ended` is owed.

| kind        | ended by                                                                    |
|-------------|-----------------------------------------------------------------------------|
| `process`   | its `ending`, by pid and start time, then a sweep for strays of its `id`    |
| `container` | `argv`, which removes it by its name                                        |
| `undo`      | `argv`, newest first                                                        |
| `user`      | nothing: says who used the run                                              |
| `guardian`  | nothing: says who guards the run                                            |
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

from blackstart.record.appending import Appending
from blackstart.record.identity import Identity, boot_id, ticks_now

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

LEDGER_NAME = "ledger.jsonl"
_VERSION = 1
_LINE_LIMIT = 32 * 1024


class ChargeKind(StrEnum):
    """What a charge is about."""

    PROCESS = "process"
    CONTAINER = "container"
    UNDO = "undo"
    USER = "user"
    GUARDIAN = "guardian"


class State(StrEnum):
    """How far a charge has come."""

    INTEND = "intend"
    BEGAN = "began"
    ENDED = "ended"


class Ending(StrEnum):
    """How a process is ended when its user is gone."""

    KILL = "kill"
    """SIGKILL to its group, then to strays."""
    POSTGRES = "postgres"
    """SIGQUIT to the postmaster, then SIGKILL to what is left in its data folder: its children lead groups of their own."""
    CONTAINER = "container"
    """The charge's own command."""


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One thing that is owed an end. `user` is the pid that asked for it; `None` is shared by the run."""

    id: str
    kind: ChargeKind
    state: State = State.INTEND
    user: int | None = None
    node: str | None = None
    ending: Ending = Ending.KILL
    argv: tuple[str, ...] = ()
    folder: str | None = None
    identity: Identity | None = None
    boot: str = ""
    since: int = 0
    """When it was intended, in clock ticks since boot, as start times are."""
    reason: str = ""

    @property
    def owed(self) -> bool:
        """Whether it may still be there."""
        return self.state is not State.ENDED and self.kind not in {ChargeKind.USER, ChargeKind.GUARDIAN}


class _Line(msgspec.Struct, omit_defaults=True, kw_only=True):
    v: int
    id: str
    state: State
    kind: ChargeKind | None = None
    user: int | None = None
    node: str | None = None
    ending: Ending = Ending.KILL
    argv: tuple[str, ...] = ()
    folder: str | None = None
    pid: int | None = None
    started: int | None = None
    boot: str = ""
    since: int = 0
    reason: str = ""


_DECODER = msgspec.json.Decoder(_Line)


class Ledger(Appending):
    """One process's pen for the run's ledger. Every step is on file before the method returns."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(run_dir / LEDGER_NAME, mode=0o600)
        self._token = secrets.token_hex(4)
        self._count = 0

    def intend(
        self,
        kind: ChargeKind,
        *,
        user: int | None,
        node: str | None = None,
        ending: Ending = Ending.KILL,
        argv: Sequence[str] = (),
        folder: Path | str | None = None,
    ) -> Charge:
        """Before the act: what will be owed. `argv` is the command that ends a container or undoes a fault."""
        with self._pen:
            self._count += 1
            number = self._count
        charge = Charge(
            id=f"{self._token}-{number}",
            kind=kind,
            user=user,
            node=node,
            ending=ending,
            argv=tuple(argv),
            folder=None if folder is None else str(folder),
            boot=boot_id(),
            since=ticks_now(),
        )
        self._write(
            _Line(
                v=_VERSION,
                id=charge.id,
                state=State.INTEND,
                kind=kind,
                user=user,
                node=node,
                ending=ending,
                argv=charge.argv,
                folder=charge.folder,
                boot=charge.boot,
                since=charge.since,
            )
        )
        return charge

    def began(self, charge: Charge, identity: Identity | None = None) -> Charge:
        """After the act: it is there, and for a process who it is."""
        self._write(
            _Line(
                v=_VERSION,
                id=charge.id,
                state=State.BEGAN,
                pid=None if identity is None else identity.pid,
                started=None if identity is None else identity.started,
            )
        )
        return replace(charge, state=State.BEGAN, identity=identity)

    def ended(self, charge: Charge | str, *, reason: str = "") -> None:
        """It is not there any more, seen by whoever writes this."""
        name = charge if isinstance(charge, str) else charge.id
        self._write(_Line(v=_VERSION, id=name, state=State.ENDED, reason=reason))

    def charges(self) -> dict[str, Charge]:
        """What `read_ledger` says, from the open file: true also after somebody has removed the run's folder."""
        return _folded(self._contents())

    def _write(self, line: _Line) -> None:
        raw = msgspec.json.encode(line) + b"\n"
        if len(raw) > _LINE_LIMIT:
            raise ValueError(
                f"{self.path}: a charge of {len(raw)} bytes; at most {_LINE_LIMIT}; try: a shorter argv"
            )
        self._append(raw)


def read_ledger(run_dir: Path) -> dict[str, Charge]:
    """Every charge of the run by id, in order of intent, each in its last state. A torn last line is not yet a step."""
    try:
        raw = (run_dir / LEDGER_NAME).read_bytes()
    except FileNotFoundError:
        return {}
    return _folded(raw)


def _folded(raw: bytes) -> dict[str, Charge]:
    charges: dict[str, Charge] = {}
    for line in raw.split(b"\n")[:-1]:
        try:
            step = _DECODER.decode(line)
        except msgspec.DecodeError:
            continue  # torn by a kill in the middle of a write: the act it announces never began
        _apply(charges, step)
    return charges


def is_over(run_dir: Path) -> bool:
    """Whether the guardian wrote itself off last, as it does when a run ends: seen from both ends of the file alone."""
    try:
        with (run_dir / LEDGER_NAME).open("rb") as file:
            first = file.readline(_LINE_LIMIT)
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LINE_LIMIT))
            last = file.read().rstrip(b"\n").rsplit(b"\n", 1)[-1]
        begins, ends = _DECODER.decode(first), _DECODER.decode(last)
    except (OSError, msgspec.DecodeError):
        return False
    return begins.kind is ChargeKind.GUARDIAN and ends.id == begins.id and ends.state is State.ENDED


def _apply(charges: dict[str, Charge], step: _Line) -> None:
    known = charges.get(step.id)
    if known is None:
        if step.kind is not None:
            charges[step.id] = Charge(
                id=step.id,
                kind=step.kind,
                state=step.state,
                user=step.user,
                node=step.node,
                ending=step.ending,
                argv=step.argv,
                folder=step.folder,
                boot=step.boot,
                since=step.since,
            )
        return
    if known.state is State.ENDED:
        return
    identity = known.identity
    if step.pid is not None and step.started is not None:
        identity = Identity(step.pid, step.started)
    charges[step.id] = replace(known, state=step.state, identity=identity, reason=step.reason)


def owed(charges: Mapping[str, Charge], **fields: Any) -> list[Charge]:
    """The charges that still need an end and whose attributes equal `fields`, oldest first."""
    return [
        charge
        for charge in charges.values()
        if charge.owed and all(getattr(charge, name) == value for name, value in fields.items())
    ]
