"""What a sub-command is and how it may end: one vocabulary for the command line and for those who extend it.

| code | name | means |
|---|---|---|
| 0 | `HELD` | everything asked about held |
| 1 | `FAILED` | something did not hold |
| 2 | `BAD_INPUT` | a flag, value, file or setting cannot be meant |
| 3 | `INCONCLUSIVE` | what was seen proves nothing either way |
| 4 | `HARNESS_FAILURE` | the harness or its set-up failed, the product was not judged |
| 130 | `INTERRUPTED` | Ctrl-C |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable


class ExitCode(IntEnum):
    """The only numbers a command of ours ends with."""

    HELD = 0
    FAILED = 1
    BAD_INPUT = 2
    INCONCLUSIVE = 3
    HARNESS_FAILURE = 4
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends a command with one line on stderr: `blackstart: <thing>=<value>: <what is wrong>; try: <remedy>`."""

    code = ExitCode.HARNESS_FAILURE

    def __init__(self, thing: str, value: object, wrong: str, *, remedy: str) -> None:
        super().__init__(f"blackstart: {thing}={value}: {wrong}; try: {remedy}")


class BadInput(CommandError):
    """A flag, value, file or setting that cannot be meant."""

    code = ExitCode.BAD_INPUT


class SetUpFailed(CommandError):
    """What the command needs could not be made; nothing was judged."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A sub-command: its arguments are declared when it is named, its imports happen when it runs."""

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
