"""The settings of one worker."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from inference_fleet.settings.errors import SettingsError
from inference_fleet.settings.reading import Reader
from inference_fleet.settings.timings import Timings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """One worker's settings, from `BLACKSTART_*` variables.

    | field                | variable               | meaning                                                      |
    |----------------------|------------------------|--------------------------------------------------------------|
    | `frontend_urls`      | `FRONTEND_URLS`        | one or several `http(s)://` addresses, comma-separated       |
    | `node_name`          | `NODE_NAME`            | default: the host's name                                     |
    | `node_type`          | `NODE_TYPE`            | `backend` (serves models) or `agent` (never placed on)       |
    | `registration_token` | `REGISTRATION_TOKEN`   | required: what registers this node                           |
    | `credential_file`    | `NODE_CREDENTIAL_FILE` | the node's own secret; default `node-credential` in data_dir |
    | `tunnel`             | `TUNNEL`               | false is fatal: nothing else reaches a worker                |
    | `models_dir`         | `MODELS_DIR`           | `<name>/model.toml` folders; default `./models`              |
    | `port_base`          | `PORT_BASE`            | first port for model processes (loopback); the worker's own  |
    |                      |                        | HTTP server takes the one before it; default 20051           |
    | `port_max`           | `PORT_MAX`             | last port for model processes; default base + 99             |
    | `data_dir`           | `DATA_DIR`             | default `./data`                                             |
    """

    frontend_urls: tuple[str, ...]
    node_name: str
    node_type: str
    registration_token: str = field(repr=False)
    credential_file: Path
    tunnel: bool
    models_dir: Path
    port_base: int
    port_max: int
    data_dir: Path
    timings: Timings

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read and check everything at once; the first wrong value raises `SettingsError`."""
        read = Reader(environ)
        base = read.port("PORT_BASE", 20051)
        assert base is not None  # it has a default
        data_dir = read.path("DATA_DIR", "data")
        settings = cls(
            frontend_urls=read.urls(
                "FRONTEND_URLS", ("http", "https"), "where the replicas or their balancer answer"
            ),
            node_name=read.name("NODE_NAME", socket.gethostname()),
            node_type=read.choice("NODE_TYPE", ("backend", "agent"), "backend"),
            registration_token=read.required(
                "REGISTRATION_TOKEN", "what the frontends accept for registration"
            ),
            credential_file=read.path("NODE_CREDENTIAL_FILE", str(data_dir / "node-credential")),
            tunnel=read.flag("TUNNEL", default=True),
            models_dir=read.path("MODELS_DIR", "models"),
            port_base=base,
            port_max=read.port("PORT_MAX", min(65535, base + 99)) or base,
            data_dir=data_dir,
            timings=Timings.from_environ(environ),
        )
        if settings.port_base < 2:
            raise SettingsError(
                "BLACKSTART_PORT_BASE",
                settings.port_base,
                "2 or more: the port before it is the worker's own",
            )
        if settings.port_max < settings.port_base:
            raise SettingsError(
                "BLACKSTART_PORT_MAX", settings.port_max, f"at least PORT_BASE ({settings.port_base})"
            )
        if not settings.tunnel:
            raise SettingsError(
                "BLACKSTART_TUNNEL",
                "false",
                "true or unset: the tunnel is the only way to reach a worker, so without it this node would "
                "register, read healthy and serve nobody",
            )
        return settings

    @property
    def http_port(self) -> int:
        """The worker's own HTTP server (loopback): the port before its model processes."""
        return self.port_base - 1
