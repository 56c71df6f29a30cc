"""`python -m bench.tunnel [--check] [--json]`: streams through the tunnel against raw loopback and a chain that copies."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Final, cast

from bench.command import Bench, Plan
from bench.floors import OF_STREAMS
from bench.measures import NothingSeen, Step
from bench.sheet import CHAIN, RAW, RAW_TLS

if TYPE_CHECKING:
    from bench.command import Options
    from bench.measures import Measures
    from bench.stage import Stage
    from bench.stands import Direction, Stand

TRANSFERS: Final = ("down", "up", "relayed-down", "relayed-up")
ROWS: Final = (*TRANSFERS, "latency", "relayed-latency", "streams", "relayed-streams", "memory")
_RELAYED: Final = "relayed-"


def plan(stage: Stage, measures: Measures, options: Options) -> Plan:
    """The controls of the rows that were asked for, then the rows, stand by stand; memory when all else is over."""
    rows = with_direct(options.rows)
    steps = controls(stage, measures, rows, tls=any(stand.wire == "tls" for stand in options.stands))
    for stand in options.stands:
        steps += [_step(stage, measures, stand, row) for row in ROWS if row in rows and row != "memory"]
    memory = [
        Step(subject=stand.name, row="memory", run=functools.partial(measures.memory, stand))
        for stand in options.stands
        if "memory" in rows
    ]
    return Plan(steps=steps, afterwards=memory, settled=functools.partial(_went_as_meant, stage, rows))


def with_direct(rows: tuple[str, ...]) -> tuple[str, ...]:
    """A relayed transfer is compared with the direct one of its round, which is then run as well."""
    needed = {row.removeprefix(_RELAYED) for row in rows if row in TRANSFERS}
    return tuple(row for row in ROWS if row in rows or row in needed)


def controls(stage: Stage, measures: Measures, rows: tuple[str, ...], *, tls: bool) -> list[Step]:
    """Raw loopback and the chain, for each direction that is measured; raw also for the other rows."""
    steps = []
    paths = [(RAW, stage.raw()), (CHAIN, stage.chain()), *([(RAW_TLS, stage.raw_tls())] if tls else [])]
    directions: tuple[Direction, ...] = ("down", "up")
    for direction in directions:
        if direction in rows:
            for subject, path in paths:
                run = functools.partial(measures.transfer, subject, direction, path, direction)
                steps.append(Step(subject=subject, row=direction, run=run))
    if any(row.endswith("latency") for row in rows):
        run = functools.partial(measures.latency, RAW, "", stage.raw())
        steps.append(Step(subject=RAW, row="latency", run=run))
    if any(row.endswith("streams") for row in rows):
        run = functools.partial(measures.streams, RAW, "streams", stage.raw())
        steps.append(Step(subject=RAW, row="streams", run=run))
    return steps


def _step(stage: Stage, measures: Measures, stand: Stand, row: str) -> Step:
    relayed = row.startswith(_RELAYED)
    path = stage.path(stand, relayed=relayed)
    kind = row.removeprefix(_RELAYED)
    if kind == "latency":
        run = functools.partial(measures.latency, stand.name, _RELAYED if relayed else "", path)
    elif kind == "streams":
        run = functools.partial(measures.streams, stand.name, row, path)
    else:
        run = functools.partial(measures.transfer, stand.name, row, path, cast("Direction", kind))
    return Step(subject=stand.name, row=row, run=run)


def _went_as_meant(stage: Stage, rows: tuple[str, ...]) -> None:
    """What was called relayed was relayed, the rest was not, and the tunnels are the ones that were asked for."""
    for stand in stage.stands:
        for relayed, wanted in ((False, {"local"}), (True, {"relayed"})):
            if any(row.startswith(_RELAYED) is relayed and row != "memory" for row in rows):
                seen = stage.routes(stand, relayed=relayed)
                if set(seen) != wanted:
                    raise NothingSeen(f"{stand.name}: streams went {seen}, all of them were to be {wanted}")
    stage.require_carriers()


BENCH: Final = Bench(
    name="tunnel",
    summary="Streams through the tunnel, each round beside raw loopback and a two-hop chain that copies.",
    rows=ROWS,
    plan=plan,
    figures=OF_STREAMS,
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
