"""Workers beside the topology: one that comes late, one that is set up wrongly, one that poses as another."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from blackstart.core.topology import Place
from blackstart.net import lease_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from blackstart.fleet.fleet import Fleet
    from blackstart.process import Handle


@contextlib.contextmanager
def stranger(fleet: Fleet, name: str, *, credential: Path | None = None, **env: str) -> Iterator[Handle]:
    """A worker process named `name` that dials as the fleet's own do, and is killed at the end if it still runs.

    It serves no model. `credential` is a node's credential file it uses as well; `env` wins over everything.
    """
    service = fleet.worker_service
    spec_dir = fleet.run.spec_dir(fleet.spec)
    folder = spec_dir / f"{name}.stranger"
    folder.mkdir(exist_ok=True)
    (folder / "models").mkdir(exist_ok=True)
    with lease_ports(service.ports, run=fleet.run.id, purpose=name) as lease:
        place = Place(name=name, index=0, ports=tuple(lease.ports), data_dir=folder)
        variables = {**service.command(place).env, "BLACKSTART_MODELS_DIR": str(folder / "models"), **env}
        if credential is not None:
            variables["BLACKSTART_NODE_CREDENTIAL_FILE"] = str(credential)
        handle = fleet.spawner.spawn(
            node=f"{name}-stranger",
            argv=list(service.command(place).argv),
            env=variables,
            cwd=folder,
            log_dir=spec_dir,
            spec=fleet.spec,
            ports=lease,
        )
        try:
            yield handle
        finally:
            handle.kill(within=fleet.timings.shutdown_s)
