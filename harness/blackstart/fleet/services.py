"""How the fleet's two kinds of process are started: every setting they get, and where each comes from."""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blackstart.core.topology import Command, Group, HttpReady, Place, Service, Topology
from blackstart.fleet.options import OptionError
from blackstart.fleet.secured import FleetTls
from inference_fleet.settings.timings import variable_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from blackstart.fleet.options import FleetOptions

MODEL_PORTS = 3  # one model, and room for a restart while the old port is still closing


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """One fleet's secrets, random for each, shared by its processes and shown nowhere."""

    auth_hmac: str = field(default_factory=_secret, repr=False)
    cluster: str = field(default_factory=_secret, repr=False)
    registration_token: str = field(default_factory=_secret, repr=False)
    admin_password: str = field(default_factory=_secret, repr=False)


class FrontendService(Service):
    """One replica: its port, instance id and advertised address are pinned; its data folder is its own."""

    name = "frontend"
    ready = HttpReady(path="/readyz")

    def __init__(
        self,
        options: FleetOptions,
        secrets: Secrets,
        *,
        database_url: Callable[[], str],
        peer_address: Callable[[Place], str] = lambda place: place.address,
        tls: FleetTls | None = None,
    ) -> None:
        """`database_url` and `peer_address`, where other replicas dial this one, are asked at each start."""
        self._tls_env: Mapping[str, str] = {} if tls is None else tls.frontend_env
        if tls is not None:
            self.scheme = "https"
            self.ready = HttpReady(path="/readyz", ca_file=str(tls.authority.cert))
        self._peer_address = peer_address
        self._options = options
        self._secrets = secrets
        self._database_url = database_url

    def command(self, place: Place) -> Command:
        """`python -m inference_fleet.frontend` with everything told by environment."""
        return Command(
            argv=(sys.executable, "-m", "inference_fleet.frontend"),
            env={
                **_timing_env(self._options),
                "BLACKSTART_DATABASE_URL": self._database_url(),
                "BLACKSTART_LISTEN": place.address,
                "BLACKSTART_ADVERTISE_ADDRESS": self._peer_address(place) if self._options.advertise else "",
                "BLACKSTART_INSTANCE_ID": place.name,
                "BLACKSTART_CLUSTER_SECRET": self._secrets.cluster,
                "BLACKSTART_REGISTRATION_TOKEN": self._secrets.registration_token,
                "BLACKSTART_AUTH_HMAC_SECRET": self._secrets.auth_hmac,
                "BLACKSTART_AUTH_REGISTRATION": "open",
                "BLACKSTART_AUTO_APPROVE_NODES": "true",
                "BLACKSTART_DATA_DIR": str(place.data_dir),
                "BLACKSTART_EXPOSE_ROUTE": "true",
                **self._tls_env,
                **self._options.env.get(place.name, {}),
            },
        )


class WorkerService(Service):
    """One worker: it dials what it is told once, binds loopback only, and has a block of ports as in production.

    The first port of the block is its own server's; its model processes take the rest and nothing beyond.
    """

    ports = 1 + MODEL_PORTS
    ready = HttpReady(path="/readyz")
    after = ("frontend",)

    def __init__(
        self,
        options: FleetOptions,
        secrets: Secrets,
        *,
        dials: Callable[[int], str],
        models: Callable[[Place], Path],
        agent: bool = False,
        tls: FleetTls | None = None,
    ) -> None:
        """`dials` gives worker N's frontend URLs; `models` the folder of its models."""
        self._tls_env: Mapping[str, str] = {} if tls is None else tls.worker_env
        self.name = "agent" if agent else "worker"
        self._agent = agent
        self._options = options
        self._secrets = secrets
        self._dials = dials
        self._models = models

    def command(self, place: Place) -> Command:
        """`python -m inference_fleet.worker` with everything told by environment."""
        return Command(
            argv=(sys.executable, "-m", "inference_fleet.worker"),
            env={
                **_timing_env(self._options),
                "BLACKSTART_FRONTEND_URLS": self._dials(place.index),
                "BLACKSTART_NODE_NAME": place.name,
                "BLACKSTART_NODE_TYPE": "agent" if self._agent else "backend",
                "BLACKSTART_REGISTRATION_TOKEN": self._secrets.registration_token,
                "BLACKSTART_MODELS_DIR": str(self._models(place)),
                "BLACKSTART_PORT_BASE": str(place.ports[1]),
                "BLACKSTART_PORT_MAX": str(place.ports[-1]),
                "BLACKSTART_DATA_DIR": str(place.data_dir),
                **self._tls_env,
                **self._options.env.get(place.name, {}),
            },
        )


def write_models(place: Place, folder: Path, options: FleetOptions) -> Path:
    """The worker's `MODELS_DIR`: a babbler named after its index, at the fleet's pace, and the fleet's `commands`. Agents have none."""
    folder.mkdir(parents=True, exist_ok=True)
    if place.name.startswith("worker-"):
        model = folder / model_of(place.index)
        model.mkdir(exist_ok=True)
        lines = ['backend = "babbler"']
        if options.tokens_per_second is not None:
            lines.append(f"tokens_per_second = {options.tokens_per_second}")
        (model / "model.toml").write_text("\n".join(lines) + "\n")
        for name, command in options.commands.items():
            more = folder / name
            more.mkdir(exist_ok=True)
            quoted = json.dumps(list(command), ensure_ascii=False)  # an array of strings is the same in TOML
            (more / "model.toml").write_text(f'backend = "command"\ncommand = {quoted}\n')
    return folder


def model_of(worker: int) -> str:
    """The model that worker N serves."""
    return f"babbler-{worker}"


def topology_of(
    options: FleetOptions,
    secrets: Secrets,
    *,
    database_url: Callable[[], str],
    dials: Callable[[int], str],
    models: Callable[[Place], Path],
    peer_address: Callable[[Place], str] = lambda place: place.address,
    tls_dir: Path | None = None,
) -> Topology:
    """The fleet as a topology: workers after frontends, budgets from the fleet's own timings.

    A fleet that speaks TLS keeps its certificates in `tls_dir`.
    """
    if options.tls and tls_dir is None:
        raise OptionError(
            "tls", options.tls, "has no folder for its certificates", "tls_dir=run.spec_dir(spec)"
        )
    tls = FleetTls(tls_dir) if options.tls and tls_dir is not None else None
    timings = options.timings
    groups = [
        Group(
            service=FrontendService(
                options, secrets, database_url=database_url, peer_address=peer_address, tls=tls
            ),
            count=options.frontends,
        ),
        Group(
            service=WorkerService(options, secrets, dials=dials, models=models, tls=tls),
            count=options.workers,
        ),
    ]
    if options.agents:
        agents = WorkerService(options, secrets, dials=dials, models=models, agent=True, tls=tls)
        groups.append(Group(service=agents, count=options.agents))
    budgets: Mapping[str, float] = {
        "ready": timings.start_s + timings.backend_start_s,
        "stop": timings.shutdown_s + timings.drain_wait_s + timings.backend_stop_s,
        "death": timings.shutdown_s,
    }
    return Topology(groups=tuple(groups), budgets=budgets, tolerates=max(0, options.frontends - 1))


def _timing_env(options: FleetOptions) -> dict[str, str]:
    overrides = {variable_of(name): f"{seconds:g}" for name, seconds in options.timings_s.items()}
    return {"BLACKSTART_TIMINGS": options.preset, **overrides}
