"""`blackstart drill`: the drill as a command, its lines, its JSON and its exit code."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import httpx2

from blackstart.cluster.stall import StallWatch
from blackstart.core.commands import CommandError, ExitCode
from blackstart.core.redact import redact
from blackstart.fleet.arguments import options_of, postgres_of, run_dir_of, seed_of
from blackstart.fleet.checks import VERDICT_OF, Check, Report, carry_out
from blackstart.fleet.drill import Drill
from blackstart.fleet.fleet import Fleet
from blackstart.fleet.rehearsal import Interrupted, Rehearsal, drawn_seed, interruptible, say, setting_up
from blackstart.record import identity_of

if TYPE_CHECKING:
    from argparse import Namespace

    from blackstart.fleet.options import FleetOptions

# What speaks of the product: assertions, ends of waits, and replicas that do not answer.
FAILURES = (AssertionError, TimeoutError, httpx2.HTTPError, LookupError)
_STALL_EVERY_S = 0.1


def run_drill(arguments: Namespace) -> int:
    """Make the drill and tell it; 130 when it was interrupted, 4 when the harness itself failed."""
    options = options_of(arguments, frontends=2, workers=2)
    postgres, thing = postgres_of(arguments)
    seed = drawn_seed(seed_of(arguments))
    began = time.monotonic()
    checks: list[Check] = []
    report: Report | None = None
    broke: Exception | None = None
    try:
        with interruptible():
            rehearsal = Rehearsal(
                spec="drill", postgres=postgres, run_dir=run_dir_of(arguments), seed=seed, thing=thing
            )
            with rehearsal, setting_up():
                broke = _make(options, rehearsal, checks, said=not arguments.json)
                report = Report(
                    checks=tuple(checks), seconds=time.monotonic() - began, evidence=rehearsal.run.dir
                )
                if broke is None:
                    rehearsal.finish(report.verdict, seconds=report.seconds)
                else:
                    rehearsal.finish("harness-failure", drill=str(report.verdict), error=repr(broke))
    except Interrupted as asked:
        sys.stderr.write(f"blackstart: {asked}: everything is ended; evidence: {rehearsal.run.dir}\n")
        return ExitCode.INTERRUPTED
    except Exception as error:
        if report is None:
            raise
        broke = broke or error
    say(json.dumps(report.as_json()) if arguments.json else str(report))
    if broke is not None:
        told = " ".join(f"{type(broke).__name__}: {broke}".split())
        raise CommandError(
            "drill",
            rehearsal.run.id,
            f"was judged and could not be ended: {told}",
            remedy=f"read {report.evidence}",
        ) from broke
    return report.exit_code


def _make(
    options: FleetOptions, rehearsal: Rehearsal, checks: list[Check], *, said: bool
) -> Exception | None:
    """Make the checks and end the fleet; what failed at ending it, which takes no verdict away."""
    timings = options.timings
    fleet = Fleet(
        options,
        run=rehearsal.run,
        spawner=rehearsal.spawner,
        journal=rehearsal.journal,
        infra=rehearsal.infra,
        spec=rehearsal.spec,
    )
    drill = Drill(fleet, seed=rehearsal.seed, tagged=lambda: rehearsal.end_shared(within=timings.shutdown_s))
    try:
        with StallWatch(every_s=_STALL_EVERY_S, bound_s=timings.instance_liveness_s) as watch:
            for check in carry_out(
                drill.steps(), failures=FAILURES, stalled=lambda: watch.take() or _postgres_gone(fleet)
            ):
                rehearsal.require_guarded()  # what was seen without it is not judged
                told = Check(id=check.id, finding=check.finding, text=redact(check.text))
                checks.append(told)
                rehearsal.journal.write(
                    "verdict",
                    spec=rehearsal.spec,
                    check=told.id,
                    verdict=str(VERDICT_OF[told.finding]),
                    text=told.text,
                )
                fleet.note(str(told))
                if said:
                    say(str(told))
    except BaseException:
        fleet.end()
        raise
    try:
        fleet.end()
    except Exception as error:  # noqa: BLE001 - told beside the report, whatever it is
        return error
    return None


def _postgres_gone(fleet: Fleet) -> str:
    """A server of ours that ended by itself: nothing the drill did could have ended it."""
    server = fleet.postgres
    if server.pid and identity_of(server.pid) is None:
        return f"Postgres (pid {server.pid}) ended by itself"
    return ""
