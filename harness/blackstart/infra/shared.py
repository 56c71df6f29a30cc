"""The run's server: started by whichever process asks first, found by all the others, ended with the run.

Some specs want a container whatever the run stands on: theirs is a second server beside the run's, shared the same way.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from blackstart.core.deadline import Looks
from blackstart.infra import external
from blackstart.infra.choice import PostgresChoice, Provider
from blackstart.infra.errors import InfraError
from blackstart.infra.names import run_prefix
from blackstart.infra.own import SPEC, installation, new_data_folder, start_server
from blackstart.infra.server import PostgresServer
from blackstart.net.leases import lease_ports
from blackstart.record import ChargeKind, Identity, identity_of

if TYPE_CHECKING:
    from blackstart.infra.admin import Budgets
    from blackstart.infra.scratch import Scratch
    from blackstart.process import Spawner
    from blackstart.record import Run

NODE = "postgres"
BESIDE = "postgres-container"  # in run.json and in the scratch folder
_EXTERNAL_STATE = "external.json"
_LOOK_EVERY_S = 0.01


def shared_server(
    run: Run,
    spawner: Spawner,
    scratch: Scratch,
    *,
    choice: PostgresChoice,
    budgets: Budgets,
    name: str = NODE,
) -> PostgresServer:
    """The server of that name, started now if nobody has. One that died is an error, never quietly another one."""
    with scratch.locked(name):
        known = known_server(scratch, name)
        if known is not None:
            _require_alive(known, run, scratch, name)
            return known
        server, started = _START[choice.provider](run, spawner, scratch, choice, budgets)
        scratch.write(_state(name), {"server": server.to_state(), "started": started})
        run.update(providers={name: {**server.facts(), "release": server.release}})
    return server


def known_server(scratch: Scratch, name: str = NODE) -> PostgresServer | None:
    """What some process of the run started under the name, or `None` while none has."""
    state = scratch.read(_state(name))
    return None if state is None else PostgresServer.from_state(state["server"])


def known_servers(scratch: Scratch) -> dict[str, PostgresServer]:
    """The run's own and the one beside it, as far as somebody has asked for them."""
    found = {name: known_server(scratch, name) for name in (NODE, BESIDE)}
    return {name: server for name, server in found.items() if server is not None}


def _state(name: str) -> str:
    return f"{name}.json"


def _require_alive(server: PostgresServer, run: Run, scratch: Scratch, name: str) -> None:
    if not server.pid:
        return
    state = scratch.read(_state(name)) or {}
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
    with lease_ports(1, run=run.id, purpose=NODE) as lease:  # ours until the server has bound it
        server, handle = start_server(
            run,
            spawner,
            installed,
            data_dir=data_dir,
            lease=lease,
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
    from blackstart.infra.container import start_container  # noqa: PLC0415 - a heavy library, mostly unused

    return start_container(run, spawner, budgets=budgets), 0


def _external(
    run: Run, spawner: Spawner, scratch: Scratch, choice: PostgresChoice, budgets: Budgets
) -> tuple[PostgresServer, int]:
    server = external.external_server(choice, budgets=budgets)
    prefix = run_prefix(run.id)
    scratch.write(_EXTERNAL_STATE, server.to_state())
    state = scratch.folder / _EXTERNAL_STATE
    undo = spawner.ledger.intend(ChargeKind.UNDO, user=None, argv=external.command("drop", state, prefix))
    spawner.ledger.began(undo)
    holder = spawner.spawn(
        node=f"{NODE}-lease",
        argv=external.command("hold", state, prefix),
        log_dir=run.spec_dir(SPEC),
        spec=SPEC,
        shared=True,
    )
    until = time.monotonic() + budgets.start_s
    for turn in Looks(until=until, every_s=_LOOK_EVERY_S, clock=time.monotonic, sleep=time.sleep):
        if external.has_sign_of_life(server, prefix, within_s=budgets.answer_s):
            break
        if not holder.alive or turn.over:
            raise InfraError(NODE, choice, wrong="no sign of life on it", remedy=holder.crash_report())
    external.drop_of_dead_runs(server, within_s=budgets.answer_s)
    return server, 0


_START = {Provider.EMBEDDED: _embedded, Provider.CONTAINER: _container, Provider.EXTERNAL: _external}
