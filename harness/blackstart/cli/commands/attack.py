"""`blackstart attack`: a guard that no spec holds is not there, and this is how one knows."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart.cli.output import complain, say
from blackstart.cli.parser import whole_number
from blackstart.core.commands import BadInput, Command, ExitCode

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Mapping, Sequence

    from blackstart.attack import Result

_MOST_JOBS = 64


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--table", metavar="DIR", default="specs/mutations", help="folder of *.toml tables")
    parser.add_argument("--list", action="store_true", help="print one row name a line and attack nothing")
    parser.add_argument("--row", metavar="NAME", help="attack this row alone")
    parser.add_argument(
        "--jobs",
        metavar="N",
        type=whole_number("--jobs", lowest=1, highest=_MOST_JOBS),
        help="scratch copies at work (default: one a core)",
    )
    parser.add_argument(
        "--cold", action="store_true", help="start each row from nothing instead of forking it (slower)"
    )
    parser.add_argument("--json", action="store_true", help="one object instead of lines")


def _run(arguments: Namespace) -> int:
    from blackstart.attack import Verdict, attack, load_tables  # noqa: PLC0415 - only this command needs it

    root = _root_of(Path.cwd())
    rows = load_tables(Path(arguments.table), root=root)
    if arguments.row is not None:
        rows = [row for row in rows if row.name == arguments.row]
        if not rows:
            raise BadInput("--row", arguments.row, "no such row", remedy="blackstart attack --list")
    if arguments.list:
        for row in rows:
            say(row.name)
        return ExitCode.HELD

    for number in (signal.SIGTERM, signal.SIGHUP):  # ended politely, it cleans up as after Ctrl-C
        signal.signal(number, signal.default_int_handler)

    results = attack(
        rows,
        root=root,
        jobs=arguments.jobs,
        cold=arguments.cold,
        tell=_tell_nothing if arguments.json else _tell,
        remark=lambda text: complain(f"attack: {text}"),
    )
    counts = {verdict.lower(): sum(result.verdict is verdict for result in results) for verdict in Verdict}
    _sum_up(results, counts, as_json=arguments.json)
    return ExitCode.HELD if counts["red"] == len(results) else ExitCode.FAILED


def _tell_nothing(_: Result) -> None:
    """One object is told at the end instead."""


def _tell(result: Result) -> None:
    say(f"{result.verdict} {result.row.name} {result.row.spec}")
    _complain_unless_red(result)


def _sum_up(results: Sequence[Result], counts: Mapping[str, int], *, as_json: bool) -> None:
    if as_json:
        say(json.dumps({"rows": [result.data() for result in results], "count": len(results), **counts}))
        return
    for result in results:  # once more: of a long log most readers see the end alone
        _complain_unless_red(result)
    told = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    say(f"attack: {len(results)} rows, {told}")


def _complain_unless_red(result: Result) -> None:
    if result.verdict != "RED":
        complain(f"attack: {result.verdict} {result.row.name} {result.row.spec}: {result.reason}")


def _root_of(folder: Path) -> Path:
    for candidate in (folder, *folder.parents):
        if (candidate / "pyproject.toml").is_file():
            return candidate
    raise BadInput(
        "folder", folder, "no pyproject.toml here or above", remedy="run it inside the project to attack"
    )


COMMAND = Command(
    name="attack",
    summary="Break the code row by row and see the named spec go red.",
    add_arguments=_add_arguments,
    run=_run,
)
