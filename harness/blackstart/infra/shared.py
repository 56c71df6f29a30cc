"""The run's one server: started by whichever process asks first, found by all the others, ended with the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackstart.infra.choice import PostgresChoice, Provider
from blackstart.infra.errors import InfraError
from blackstart.infra.own import SPEC, installation, new_data_folder, start_server
from blackstart.infra.server import PostgresServer
from blackstart.net.leases import lease_ports
from blackstart.record import Identity, identity_of

if TYPE_CHECKING:
    from blackstart.infra.admin import Budgets
    from blackstart.infra.scratch import Scratch
    from blackstart.process import Spawner
    from blackstart.record import Run

NODE = "postgres"
_STATE = "server.json"


def shared_server(
    run: Run, spawner: Spawner, scratch: Scratch, *, choice: PostgresChoice, budgets: Budgets
) -> PostgresServer:
    """The server of the run, started now if nobody has. One that died is an error, never quietly another one."""
    with scratch.locked("server"):
        known = known_server(scratch)
        if known is not None:
            _require_alive(known, run, scratch)
            return known
        server, started = _START[choice.provider](run, spawner, scratch, choice, budgets)
        scratch.write(_STATE, {"server": server.to_state(), "started": started})
        run.update(providers={"postgres": {**server.facts(), "release": server.release}})
    return server


def known_server(scratch: Scratch) -> PostgresServer | None:
    """What some process of the run started, or `None` while none has."""
    state = scratch.read(_STATE)
    return None if state is None else PostgresServer.from_state(state["server"])


def _require_alive(server: PostgresServer, run: Run, scratch: Scratch) -> None:
    if not server.pid:
        return
    state = scratch.read(_STATE) or {}
    if identity_of(server.pid) != Identity(server.pid, int(state.get("started", 0))):
        raise InfraError(
            NODE,
            f"pid {server.pid}",
            wrong="the run's server is dead, and nothing that needs it can be judged",
            remedy=f"read {run.spec_dir(SPEC) / NODE}.1.log",
        )


def _embedded(
    run: Run, spawner: Spawner, scratch: Scratch, _choice: PostgresChoice, budgets: Budgets
) -> tuple[PostgresServer, int]:
    installed = installation(scratch)
    data_dir = new_data_folder(scratch, installed, NODE, within_s=budgets.start_s)
    server, handle = start_server(
        run,
        spawner,
        installed,
        data_dir=data_dir,
        lease=lease_ports(1, run=run.id, purpose=NODE),
        node=NODE,
        spec=SPEC,
        incarnation=1,
        shared=True,
        budgets=budgets,
    )
    return server, handle.identity.started


def _container(
    run: Run, spawner: Spawner, _scratch: Scratch, _choice: PostgresChoice, budgets: Budgets
) -> tuple[PostgresServer, int]:
    from blackstart.infra.container import start_container  # noqa: PLC0415 - testcontainers is heavy and mostly unused

    return start_container(run, spawner, budgets=budgets), 0


def _external(
    _run: Run, _spawner: Spawner, _scratch: Scratch, choice: PostgresChoice, budgets: Budgets
) -> tuple[PostgresServer, int]:
    from blackstart.infra.external import external_server  # noqa: PLC0415 - beside its sibling above

    return external_server(choice, budgets=budgets), 0


_START = {Provider.EMBEDDED: _embedded, Provider.CONTAINER: _container, Provider.EXTERNAL: _external}
