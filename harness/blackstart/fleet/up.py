"""`blackstart up`: a whole fleet in the foreground, for somebody who wants to hurt it by hand."""

from __future__ import annotations

import contextlib
import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from blackstart.core.commands import BadInput, ExitCode
from blackstart.core.deadline import Looks
from blackstart.fleet.arguments import count_of, options_of, postgres_of, run_dir_of, seed_of
from blackstart.fleet.fleet import Fleet
from blackstart.fleet.rehearsal import Interrupted, Rehearsal, drawn_seed, interruptible, say, setting_up
from blackstart.fleet.services import model_of

if TYPE_CHECKING:
    from argparse import Namespace

    from blackstart.fleet.options import FleetOptions

_LOOK_EVERY_S = 0.5


def run_up(arguments: Namespace) -> int:
    """Bring it up, say where everything is, stay until told to end."""
    if arguments.topology is not None:
        raise BadInput(
            "TOPOLOGY", arguments.topology, "topology files cannot be read yet", remedy="blackstart up"
        )
    options = options_of(
        arguments,
        frontends=count_of("--frontends", arguments.frontends),
        workers=count_of("--workers", arguments.workers),
    )
    postgres, thing = postgres_of(arguments)
    seed = drawn_seed(seed_of(arguments))
    asked = ""
    try:
        with interruptible():
            rehearsal = Rehearsal(
                spec="up", postgres=postgres, run_dir=run_dir_of(arguments), seed=seed, thing=thing
            )
            with rehearsal, setting_up(), contextlib.closing(_fleet(options, rehearsal)) as fleet:
                fleet.start()
                asked = _stay(fleet, rehearsal, ready=_as_json(fleet) if arguments.json else _as_text(fleet))
                rehearsal.finish("ended", asked=asked)
    except Interrupted:
        return ExitCode.INTERRUPTED
    sys.stderr.write(f"blackstart: {asked}: everything is ended; evidence: {rehearsal.run.dir}\n")
    return ExitCode.HELD


def _fleet(options: FleetOptions, rehearsal: Rehearsal) -> _Kept:
    return _Kept(
        options,
        run=rehearsal.run,
        spawner=rehearsal.spawner,
        journal=rehearsal.journal,
        infra=rehearsal.infra,
        spec=rehearsal.spec,
    )


class _Kept(Fleet):
    """A fleet whose deaths are told but are no error: killing its nodes is what it is there for."""

    def close(self) -> None:
        self.end()


def _stay(fleet: Fleet, rehearsal: Rehearsal, *, ready: str) -> str:
    """Say that it is ready, then tell of each death once, until somebody asks for the end; how they asked.

    Whoever reads the line may ask at once, so it is said where the asking is heard. Without its guardian it does not stay.
    """
    told: set[str] = set()
    try:
        say(ready)
        for _ in Looks(until=math.inf, every_s=_LOOK_EVERY_S, clock=time.monotonic, sleep=time.sleep):
            rehearsal.require_guarded()
            for node in fleet.dead:
                name = f"{node.name}.{node.incarnation}"
                if name not in told:
                    told.add(name)
                    sys.stderr.write(f"blackstart: {node.describe_death()}\n")
    except Interrupted as asked:
        how = str(asked)
    return how


def _as_json(fleet: Fleet) -> str:
    told: dict[str, Any] = {
        "run": fleet.run.id,
        "run_dir": str(fleet.run.dir),
        "socket": None,
        "postgres": {"provider": str(fleet.postgres.provider), "url": fleet.database_url},
        "balancer": fleet.balancer.url,
        "frontends": [
            {"name": node.name, "id": node.name, "url": node.url, "pid": node.pid} for node in fleet.frontends
        ],
        "workers": [
            {"name": node.name, "id": fleet.node_id(node.index), "pid": node.pid} for node in fleet.workers
        ],
        "admin_cookie": fleet.admin.cookie,
        "api_key": fleet.admin.api_key,
    }
    return json.dumps(told)


def _as_text(fleet: Fleet) -> str:
    lines = [
        f"run        {fleet.run.id}, evidence in {fleet.run.dir}",
        f"postgres   {fleet.postgres.describe()}",
        f"balancer   {fleet.balancer.url}",
        *(f"{node.name:<11}{node.url}  pid {node.pid}" for node in fleet.frontends),
        *(f"{node.name:<11}{model_of(node.index)}  pid {node.pid}" for node in fleet.workers),
        "ready; Ctrl-C ends it; secrets and keys: blackstart up --json",
    ]
    return "\n".join(lines)
