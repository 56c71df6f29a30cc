"""`python -m bench.http [--check] [--json]`: what a client of `/v1` feels, against raw loopback and the backend itself."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Final

from bench.command import Bench, Plan
from bench.floors import OF_ANSWERS
from bench.measures import Step
from bench.sheet import RAW

if TYPE_CHECKING:
    from bench.command import Options
    from bench.measures import Measures
    from bench.stage import Stage
    from bench.stands import Stand

ROWS: Final = ("answer", "small", "relayed-answer", "relayed-small")
_RELAYED: Final = "relayed-"


def plan(stage: Stage, measures: Measures, options: Options) -> Plan:
    """Raw loopback down, then the rows, stand by stand; relayed ones are a subject of their own."""
    steps = []
    if any(row.endswith("answer") for row in options.rows):
        run = functools.partial(measures.transfer, RAW, "down", stage.raw(), "down")
        steps.append(Step(subject=RAW, row="down", run=run))
    key = stage.mint_key()
    for stand in options.stands:
        steps += [_step(stage, measures, stand, row, key) for row in options.rows]
    return Plan(steps=steps, settled=stage.require_carriers)


def _step(stage: Stage, measures: Measures, stand: Stand, row: str, key: str) -> Step:
    relayed = row.startswith(_RELAYED)
    subject = f"{stand.name} relayed" if relayed else stand.name
    path = stage.web_path(stand, relayed=relayed)
    if row.endswith("answer"):
        run = functools.partial(measures.web, subject, "http", path, model=stand.model, key=key)
    else:
        run = functools.partial(
            measures.web_small,
            subject,
            port=path.port,
            direct_port=stage.backend_port(stand),
            model=stand.model,
            key=key,
        )
    return Step(subject=subject, row=row.removeprefix(_RELAYED), run=run)


BENCH: Final = Bench(
    name="http",
    summary="Answers of a model process through /v1, a replica and its tunnel, beside raw loopback and the process itself.",
    rows=ROWS,
    plan=plan,
    figures=OF_ANSWERS,
)


if __name__ == "__main__":
    sys.exit(BENCH.main())
