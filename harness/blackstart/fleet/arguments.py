"""The arguments `drill` and `up` share, checked before anything starts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart.core.commands import BadInput
from blackstart.fleet.options import FleetOptions, OptionError
from blackstart.infra.choice import parse_choice
from blackstart.infra.errors import BadPostgresOption

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_LARGEST_SEED = 2**63 - 1
_LONGEST_SEED = len(str(_LARGEST_SEED))


def add_run_arguments(parser: ArgumentParser) -> None:
    """`--json`, `--postgres`, `--preset`, `--run-dir`, `--seed`."""
    parser.add_argument(
        "--json", action="store_true", help="one JSON object on stdout instead of lines for people"
    )
    parser.add_argument(
        "--postgres",
        metavar="WHICH",
        help="embedded (default), container, or the URL of a running server [BLACKSTART_POSTGRES]",
    )
    parser.add_argument(
        "--preset", default="drill", help="timings of the fleet: drill (default) or production"
    )
    parser.add_argument(
        "--run-dir", default="logs", metavar="DIR", help="parent of the run folders (default: logs)"
    )
    parser.add_argument("--seed", metavar="N", help="seed of everything random (default: drawn)")


def postgres_of(arguments: Namespace) -> tuple[str, str]:
    """The choice and the name of the thing it was given by; `BadInput` for one that cannot be meant."""
    thing = "--postgres" if arguments.postgres is not None else "BLACKSTART_POSTGRES"
    choice = (
        arguments.postgres
        if arguments.postgres is not None
        else os.environ.get("BLACKSTART_POSTGRES") or "embedded"
    )
    try:
        parse_choice(choice, thing=thing)
    except BadPostgresOption as wrong:
        shown, _, rest = str(wrong).removeprefix(f"{thing}=").partition(": ")
        told, _, remedy = rest.partition("; try: ")
        raise BadInput(thing, shown, told, remedy=remedy) from wrong
    return choice, thing


def run_dir_of(arguments: Namespace) -> Path:
    """The parent of the run folder, absolute; an empty text names none, and never the current folder."""
    if not arguments.run_dir:
        raise BadInput("--run-dir", "", "names no folder", remedy="--run-dir logs")
    return Path(arguments.run_dir).absolute()


def seed_of(arguments: Namespace) -> int | None:
    """The seed asked for."""
    text = arguments.seed
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _LONGEST_SEED and int(text) <= _LARGEST_SEED:
        return int(text)
    raise BadInput("--seed", text, f"not a whole number from 0 to {_LARGEST_SEED}", remedy="--seed 7")


def count_of(flag: str, text: str) -> int:
    """A number of nodes, as far as digits go; whether a fleet can have so many is `FleetOptions`' to say."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    raise BadInput(flag, text, "not a whole number", remedy=f"{flag} 2")


def options_of(arguments: Namespace, *, frontends: int, workers: int) -> FleetOptions:
    """The fleet asked for; `BadInput` by the flag's name for one that cannot be built."""
    try:
        return FleetOptions(frontends=frontends, workers=workers, preset=arguments.preset)
    except OptionError as wrong:
        flag = f"--{wrong.thing}"
        remedy = wrong.remedy if wrong.thing == "preset" else f"{flag} 2"
        raise BadInput(flag, wrong.value, wrong.wrong, remedy=remedy) from wrong
