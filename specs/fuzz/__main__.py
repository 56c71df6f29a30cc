"""`ci/fuzz`: arbitrary bytes for everything of the tunnel that reads a peer's."""

from __future__ import annotations

import logging
import secrets
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from specs.fuzz.campaign import TARGETS, campaign, replay

from blackstart.cli.parser import Parser, whole_number
from blackstart.core.commands import BadInput

if TYPE_CHECKING:
    from specs.fuzz.campaign import Crash

PLACE: Final = Path(".fuzz")
_MEBIBYTE: Final = 1024 * 1024


def main() -> int:
    """0 when nothing crashed or hung and memory stayed flat."""
    parser = Parser(prog="ci/fuzz")
    seconds = whole_number("--seconds", lowest=1, highest=7 * 24 * 3600)
    parser.add_argument("--seconds", type=seconds, default=600, metavar="N")
    parser.add_argument("--target", choices=[*TARGETS, "all"], default="all")
    parser.add_argument("--seed", type=whole_number("--seed", lowest=0, highest=2**32 - 1), metavar="N")
    parser.add_argument("--replay", type=Path, metavar="FILE")
    try:
        arguments = parser.parse_args()
    except BadInput as wrong:
        _complain(str(wrong))
        return wrong.code
    logging.disable(logging.CRITICAL)  # each breach is logged by its session, and all of them are meant
    if arguments.replay is not None:
        return _replay(arguments.replay)
    number = secrets.randbits(32) if arguments.seed is None else arguments.seed
    targets = list(TARGETS) if arguments.target == "all" else [arguments.target]
    _say(f"fuzz: {', '.join(targets)} for {arguments.seconds} s, seed {number}")
    outcome = campaign(targets, number=number, seconds=arguments.seconds)
    first, last = (size / _MEBIBYTE for size in outcome.quarters)
    for target, count in outcome.examples.items():
        _say(f"fuzz: {target}: {count} examples")
    _say(
        f"fuzz: {sum(outcome.examples.values())} examples in {outcome.seconds:.0f} s ({outcome.cpu_s:.0f} s of processor time), seed {number}; "
        f"memory {first:.1f} MiB in the first quarter, {last:.1f} MiB in the last: "
        f"{'flat' if outcome.flat else 'GROWS'}"
    )
    if outcome.crash is not None:
        _show(outcome.crash)
        _complain(f"fuzz: CRASH; reproduce: ci/fuzz --replay {outcome.crash.save(PLACE)}")
    return 0 if outcome.passed else 1


def _replay(path: Path) -> int:
    try:
        crash = replay(path)
    except (OSError, ValueError, SyntaxError, TypeError, RecursionError) as error:
        _complain(f"blackstart: replay={path}: {error}; try: a file that ci/fuzz has written")
        return 2
    if crash is None:
        _say("fuzz: this case breaks nothing")
        return 0
    _show(crash)
    return 1


def _show(crash: Crash) -> None:
    _complain("".join(traceback.format_exception(crash.error)))
    _complain(f"fuzz: {crash.target}: {crash.case!r}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _complain(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
