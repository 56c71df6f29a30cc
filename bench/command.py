"""What both commands have in common: their options, the run around them, the rounds, the report and the exit code.

| exit | means                                                                                    |
|------|------------------------------------------------------------------------------------------|
| 0    | measured; with `--check` every floor was reached                                         |
| 1    | with `--check` a floor was missed, which is named; or content came changed, or a transfer broke |
| 2    | an option that cannot be meant                                                           |
| 4    | it could not be set up, or a carrier that was asked for did not run                      |
| 130  | interrupted; everything is ended                                                         |
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.floors import judge
from bench.machine import machine_facts
from bench.measures import Measures, NothingSeen, Step
from bench.order import interleaved
from bench.remote import RemoteFailed
from bench.report import as_json, rendered
from bench.sheet import Sheet
from bench.sizes import Sizes, sizes_of
from bench.stage import Stage
from bench.stands import CARRIERS, WIRES, Stand, chosen, judged, stands_of
from blackstart.cluster.node import UnexpectedDeath
from blackstart.core.commands import BadInput, CommandError, ExitCode
from blackstart.core.redact import redact
from blackstart.fleet.arguments import postgres_of, run_dir_of
from blackstart.fleet.rehearsal import Interrupted, Rehearsal, drawn_seed, interruptible, say, setting_up
from inference_fleet.settings.commands import Arguments

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence

    from bench.floors import Judgement

_MOST_ROUNDS: Final = 1000
_MOST_MIB: Final = 4096


class BenchFailed(CommandError):
    """Something went wrong that speaks of the product."""

    code = ExitCode.FAILED


@dataclass(frozen=True, kw_only=True)
class Options:
    """What was asked for."""

    stands: tuple[Stand, ...]
    rows: tuple[str, ...]
    rounds: int
    sizes: Sizes


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The steps of a bench: those that are interleaved, and those that come after all of them, also once a round."""

    steps: Sequence[Step]
    afterwards: Sequence[Step] = ()
    settled: Callable[[], None] = lambda: None
    """Looks, at the end, whether everything went the way it was meant to go."""


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One command: its name, its rows, and what it makes of a stage."""

    name: str
    summary: str
    rows: tuple[str, ...]
    plan: Callable[[Stage, Measures, Options], Plan]
    figures: frozenset[str]
    """Those with a floor that all rows together give."""
    rounds: int = 7
    crowds: int = 0
    """Processes of many tunnels for each stand; one where the row `memory` is asked for."""

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run it; the exit code."""
        arguments = self._parser().parse_args(argv)
        try:
            return self._run(arguments)
        except CommandError as error:
            sys.stderr.write(redact(str(error)) + "\n")
            return error.code
        except KeyboardInterrupt:
            return ExitCode.INTERRUPTED
        except Exception:  # noqa: BLE001 - the last resort: a defect of the bench must not look like a verdict
            sys.stderr.write(redact(traceback.format_exc()))
            return ExitCode.HARNESS_FAILURE

    def _parser(self) -> Arguments:
        parser = Arguments(prog=f"python -m bench.{self.name}", description=self.summary)
        add = parser.add_argument
        add("--check", action="store_true", help="exit 1 when a floor is missed")
        add("--json", action="store_true", help="one JSON object on stdout")
        add(
            "--rounds",
            default=str(self.rounds),
            metavar="N",
            help=f"how often each row is run (default: {self.rounds})",
        )
        add("--size-mib", default="128", metavar="N", help="MiB of one transfer (default: 128)")
        add("--rows", default="all", metavar="NAME,...", help=f"of {', '.join(self.rows)} (default: all)")
        add("--carrier", default="all", metavar="NAME,...", help="takeover, asgi (default: both)")
        add("--wire", default="all", metavar="NAME,...", help="plain, tls (default: both)")
        add(
            "--postgres",
            metavar="WHICH",
            help="embedded (default), container, or a URL [BLACKSTART_POSTGRES]",
        )
        add("--run-dir", default="logs", metavar="DIR", help="parent of the run folders (default: logs)")
        return parser

    def _run(self, arguments: Namespace) -> int:
        options = Options(
            stands=stands_of(
                carriers=chosen("--carrier", arguments.carrier, CARRIERS),
                wires=chosen("--wire", arguments.wire, WIRES),
            ),
            rows=chosen("--rows", arguments.rows, self.rows),
            rounds=_number("--rounds", arguments.rounds, most=_MOST_ROUNDS),
            sizes=sizes_of(_number("--size-mib", arguments.size_mib, most=_MOST_MIB)),
        )
        subject = judged(options.stands)
        if arguments.check and subject is None:
            raise BadInput(
                "--wire", arguments.wire, "floors are held on plain tunnels", remedy="--wire plain"
            )
        postgres, thing = postgres_of(arguments)
        settings: dict[str, object] = dict(machine_facts())
        sheet, began = Sheet(), time.monotonic()
        try:
            with interruptible():
                rehearsal = Rehearsal(
                    spec=f"bench-{self.name}",
                    postgres=postgres,
                    run_dir=run_dir_of(arguments),
                    seed=drawn_seed(None),
                    thing=thing,
                )
                with rehearsal, setting_up():
                    self._measure(rehearsal, options, sheet, settings)
                    rehearsal.finish("measured")
        except Interrupted as asked:
            sys.stderr.write(f"blackstart: {asked}: everything is ended; evidence: {rehearsal.run.dir}\n")
            return ExitCode.INTERRUPTED
        settings["took"] = f"{time.monotonic() - began:.0f} s"
        settings["evidence"] = str(rehearsal.run.dir)
        due = self.figures if set(options.rows) == set(self.rows) else ()
        found = [] if subject is None else judge(subject.name, sheet.medians(subject.name), due=due)
        shape = as_json if arguments.json else rendered
        told = shape(sheet, settings=settings, judgements=found)
        say(told if isinstance(told, str) else json.dumps(told))
        return _verdict(found) if arguments.check else ExitCode.HELD

    def _measure(
        self, rehearsal: Rehearsal, options: Options, sheet: Sheet, settings: dict[str, object]
    ) -> None:
        try:
            with Stage(
                rehearsal, options.stands, crowds=self.crowds or int("memory" in options.rows)
            ) as stage:
                plan = self.plan(stage, Measures(stage, sheet, options.sizes), options)
                settings |= {
                    "event loop": stage.loop(),
                    "timings": "production",
                    "sizes": str(options.sizes),
                    "rounds": options.rounds,
                    "carriers that ran": ", ".join(
                        f"{path} {count:g}"
                        for seen in stage.carriers().values()
                        for path, count in seen.items()
                        if count
                    ),
                }
                for steps in (plan.steps, plan.afterwards):
                    for number, steps_of_round in enumerate(interleaved(steps, rounds=options.rounds), 1):
                        for step in steps_of_round:
                            sys.stderr.write(f"round {number} of {options.rounds}: {step}\n")
                            step.run()
                plan.settled()
        except (RemoteFailed, NothingSeen, UnexpectedDeath) as error:
            told = " ".join(str(error).split())
            raise BenchFailed(
                f"bench.{self.name}", rehearsal.run.id, told, remedy=f"read {rehearsal.run.dir}"
            ) from error


def _verdict(judgements: Sequence[Judgement]) -> int:
    missed = [judgement for judgement in judgements if not judgement.held]
    for judgement in missed:
        sys.stderr.write(f"blackstart: {judgement}\n")
    return ExitCode.FAILED if missed else ExitCode.HELD


def _number(flag: str, text: str, *, most: int) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most:
        return int(text)
    raise BadInput(flag, text, f"not a whole number from 1 to {most}", remedy=f"{flag} 7")
