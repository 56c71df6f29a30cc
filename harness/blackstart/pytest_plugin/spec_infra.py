"""Infra for one spec: what it asks for ends with it, the server it may be the first to start is the run's, and what it
leaves on that server or on the container engine is seen.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psycopg

from blackstart.infra import Infra
from blackstart.infra.engine import RUN_LABEL, find_engine
from blackstart.infra.names import container_name, run_prefix
from blackstart.infra.scratch import Scratch
from blackstart.infra.shared import BESIDE, NODE, known_servers

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from blackstart.core.sentinel import Inventory
    from blackstart.infra import PostgresServer
    from blackstart.process import Spawner
    from blackstart.record import Run

_ASK_S = 10.0


class SpecInfra(Infra):
    """`Infra` whose shared server is no leak of the spec that happened to need it first."""

    def __init__(
        self,
        run: Run,
        spawner: Spawner,
        option: str,
        *,
        wanted: str | None = None,
        adopting: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`option` is the run's; a spec that `wanted` another one gets the server beside the run's."""
        name = NODE if wanted in {None, option} else BESIDE
        super().__init__(run, spawner, wanted or option, name=name)
        self._adopting = adopting

    @property
    def postgres(self) -> PostgresServer:
        """The run's server."""
        if self.started:
            return super().postgres
        with self._adopting():
            return super().postgres


def databases(run: Run) -> Inventory:
    """This process's databases on the run's servers, as those list them; nothing where none was started."""
    scratch = Scratch.found(run, within_s=_ASK_S)
    servers = {} if scratch is None else known_servers(scratch)
    return {key: told for server in servers.values() for key, told in _databases_on(server, run).items()}


def _databases_on(server: PostgresServer, run: Run) -> Inventory:
    with psycopg.connect(server.url(), connect_timeout=int(_ASK_S), autocommit=True) as connection:
        rows = connection.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)",
            [f"{run_prefix(run.id)}{os.getpid()}_"],
        ).fetchall()
    return {name: name for (name,) in rows}


def containers(run: Run) -> Inventory:
    """The run's containers as the engine lists them, but for the server all its specs share, which another may start any time.

    Nothing where no engine answers.
    """
    engine = find_engine()
    if isinstance(engine, str):
        return {}
    found = engine.containers(label=f"{RUN_LABEL}={run.id}")
    shared = f"/{container_name(run.id)}"
    return {name: name.lstrip("/") for container in found for name in container["Names"] if name != shared}
