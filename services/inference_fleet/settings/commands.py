"""What every service's command says of input it cannot use, in one form: `blackstart: <thing>=<value>: <what is wrong>; try: <remedy>`."""

from __future__ import annotations

import argparse
import inspect
import sys
from typing import NoReturn

BAD_INPUT = 2
_LONGEST = 120
_ARGPARSE_SAYINGS = {
    "unrecognized arguments": "no such argument",
    "the following arguments are required": "missing",
}


def complain(text: str, status: int = BAD_INPUT) -> int:
    """Say it on stderr, in one line that begins as every command's does; gives the exit status back."""
    sys.stderr.write(f"blackstart: {text}\n")
    return status


class Arguments(argparse.ArgumentParser):
    """A command line whose errors have our form; `settings` is the class whose table `--help` shows."""

    def __init__(self, *, settings: type | None = None, prog: str, description: str = "") -> None:
        super().__init__(
            prog=prog,
            description=description,
            epilog=None if settings is None else inspect.getdoc(settings),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """One line instead of a usage text, and status 2."""
        kind, _, rest = message.partition(": ")
        if kind in _ARGPARSE_SAYINGS:
            name, wrong = rest, _ARGPARSE_SAYINGS[kind]
        else:
            name, wrong = kind.removeprefix("argument "), rest
        sys.exit(complain(f"argument={_shown(name)}: {_shown(wrong)}; try: {self.prog} --help"))


def _shown(text: str) -> str:
    """Whatever was typed, as one short line."""
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)
