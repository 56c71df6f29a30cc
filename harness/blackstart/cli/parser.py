"""argparse in the house's error form: every refusal names the thing, the value, what is wrong and what to try."""

from __future__ import annotations

import argparse
import re
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NoReturn

from blackstart.core.commands import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from blackstart.core.commands import Command

_CHOICE = re.compile(
    r"argument (?P<thing>[^:]+): invalid choice: '?(?P<value>.*?)'? \(choose from (?P<choices>.*)\)"
)
_UNKNOWN = re.compile(r"unrecognized arguments: (?P<value>.*)")
_MISSING = re.compile(r"the following arguments are required: (?P<thing>.*)")
_VALUE = re.compile(r"argument (?P<thing>[^:]+): invalid \S+ value: '?(?P<value>.*?)'?")
_OTHER = re.compile(r"argument (?P<thing>[^:]+): (?P<wrong>.*)")


class Parser(argparse.ArgumentParser):
    """Refuses with a `BadInput` instead of a usage text; abbreviations of flags are unknown flags."""

    def __init__(self, **options: object) -> None:
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)  # type: ignore[arg-type]  # passed through to argparse unchanged

    def error(self, message: str) -> NoReturn:
        """Argparse's message, taken apart into the house's form."""
        raise self._refusal(message)

    def _refusal(self, message: str) -> BadInput:
        remedy = f"{self.prog} --help"
        if found := _CHOICE.fullmatch(message):
            choices = found["choices"].replace("'", "")
            return BadInput(_flag(found["thing"]), found["value"], "no such choice", remedy=choices)
        if found := _UNKNOWN.fullmatch(message):
            return BadInput("argument", found["value"], "unknown here", remedy=remedy)
        if found := _MISSING.fullmatch(message):
            return BadInput(found["thing"], "", "missing", remedy=remedy)
        if found := _VALUE.fullmatch(message):
            return BadInput(_flag(found["thing"]), found["value"], "not a value it can take", remedy=remedy)
        if found := _OTHER.fullmatch(message):
            return BadInput(_flag(found["thing"]), "", found["wrong"], remedy=remedy)
        return BadInput("arguments", "", message, remedy=remedy)


def build_parser(commands: Iterable[Command]) -> Parser:
    """The whole command line over the commands that exist."""
    parser = Parser(
        prog="blackstart",
        description="Start a real cluster, kill the part you name, and show with evidence what survived.",
        epilog="exit codes: 0 held, 1 failed, 2 bad input, 3 inconclusive, 4 harness or set-up failure, 130 Ctrl-C",
    )
    parser.add_argument("--version", action="version", version=f"blackstart {_version()}")
    subparsers = parser.add_subparsers(dest="command", metavar="command", title="commands")
    for command in commands:
        one = subparsers.add_parser(command.name, help=command.summary, description=command.summary)
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    return parser


def whole_number(flag: str, *, lowest: int, highest: int) -> Callable[[str], int]:
    """A converter for `type=`: digits within the bounds, else a `BadInput` that names the flag."""

    def convert(text: str) -> int:
        if text.isascii() and text.isdigit() and lowest <= int(text) <= highest:
            return int(text)
        raise BadInput(
            flag, text, f"not a whole number from {lowest} to {highest}", remedy=f"{flag} {max(lowest, 1)}"
        )

    return convert


def _flag(thing: str) -> str:
    """`--jobs` of `-j/--jobs`."""
    return thing.rsplit("/", 1)[-1]


def _version() -> str:
    try:
        return version("blackstart")
    except PackageNotFoundError:
        return "(not installed)"
