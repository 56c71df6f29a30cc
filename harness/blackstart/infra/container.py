"""Postgres in a container, through testcontainers: what CI and production-like runs stand on, cleaned up by the guardian.

testcontainers' own reaper is off: it is an image pulled in the middle of a run, and its filter may never arrive. The
container is in the run's ledger before it exists, so the guardian removes it even after `kill -9` of everybody.
"""

from __future__ import annotations

import secrets
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.config import ConnectionMode, testcontainers_config
from testcontainers.core.container import DockerContainer

from blackstart.infra import admin
from blackstart.infra.choice import IMAGE_VARIABLE, image_name
from blackstart.infra.engine import (
    HOST_LABEL,
    RUN_LABEL,
    Engine,
    EngineError,
    engine_address,
    find_wanted_engine,
    host_identity,
    remove_leftovers,
)
from blackstart.infra.errors import InfraError
from blackstart.infra.names import container_name
from blackstart.infra.server import PostgresServer
from blackstart.net.leases import lease_ports
from blackstart.record import ChargeKind, Ending

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from blackstart.infra.admin import Budgets
    from blackstart.process import Spawner
    from blackstart.record import Run

LEFTOVERS_S = 24 * 3600.0
_INSIDE = 5432
_USER = "postgres"
_SETTINGS = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=400")


def usable_engine(image: str, *, remark: Callable[[str], object]) -> Engine:
    """An engine that answers and has the image; each lack is an error of its own. Nothing is pulled."""
    engine = find_wanted_engine(remark=remark)
    if isinstance(engine, str):
        raise InfraError(
            "postgres",
            "container",
            wrong=engine,
            remedy="start one (ci/system does, as root), or DOCKER_HOST, or --postgres embedded",
        )
    if not engine.has_image(image):
        here = [tag for tag in engine.images() if "postgres" in tag]
        remedy = " or ".join(f"{IMAGE_VARIABLE}={tag}" for tag in here or ["an image it has"])
        raise InfraError(
            "image",
            image,
            wrong=f"is not on the engine at {engine.address}, and none is pulled in a run",
            remedy=f"{remedy}, or docker pull {image}",
        )
    return engine


def start_container(run: Run, spawner: Spawner, *, budgets: Budgets) -> PostgresServer:
    """The run's server in a container; returns once it has answered over TCP as its user."""
    image = image_name()
    engine = usable_engine(image, remark=spawner.remark)
    remove_leftovers(engine, older_than_s=LEFTOVERS_S)
    name = container_name(run.id)
    log = run.spec_dir("infra") / "postgres.container.log"
    removal = (
        sys.executable,
        *("-m", "blackstart.infra.engine", "--address", engine_address(), "--log", str(log), "remove", name),
    )
    charge = spawner.ledger.intend(
        ChargeKind.CONTAINER, user=None, node="postgres", ending=Ending.CONTAINER, argv=removal
    )
    password = secrets.token_urlsafe(18)
    try:
        server = _start(run, engine, image=image, name=name, password=password, budgets=budgets)
    except BaseException as error:
        _remove_partial(engine, name, log)
        spawner.ledger.ended(charge, reason="did not start")
        if isinstance(error, InfraError) or not isinstance(error, Exception):
            raise
        raise InfraError(
            "postgres",
            f"container of {image}",
            wrong=f"did not start: {type(error).__name__}: {' '.join(str(error).split())[:500]}",
            remedy=f"read {log}",
        ) from error
    spawner.ledger.began(charge)
    return server


def _start(
    run: Run, engine: Engine, *, image: str, name: str, password: str, budgets: Budgets
) -> PostgresServer:
    local = engine.address.startswith("unix://")
    _configure(host="127.0.0.1" if local else urlsplit(engine.address).hostname)
    container = PostgresContainer(
        image,
        username=_USER,
        password=password,
        dbname="postgres",
        driver=None,
        name=name,
        command=["postgres", *_SETTINGS],
    ).with_kwargs(
        labels={RUN_LABEL: run.id, HOST_LABEL: host_identity()},
        network="bridge",  # the default one; testcontainers would look for the network of a container around us
    )

    def died() -> str:
        return "" if engine.runs(name) else "the container has ended"

    with lease_ports(
        1, run=run.id, purpose="postgres-container"
    ) as lease:  # ours until the engine has bound it
        published: Any = ("127.0.0.1", lease.ports[0]) if local else lease.ports[0]
        container.ports = {f"{_INSIDE}/tcp": published}
        DockerContainer.start(container)  # without its own wait, which goes on for a container that has ended
        host = container.get_container_host_ip()
        container.get_docker_client().client.close()
        facts = PostgresServer(
            provider="container",
            version=0,
            host=host,
            port=lease.ports[0],
            user=_USER,
            password=password,
            origin=f"{image} on engine {engine.version}",
            container=name,
        )
        version = admin.wait_until_answers(
            facts.url(), within_s=budgets.start_s, answer_s=budgets.answer_s, died=died, thing=name
        )
    admin.require_version(version, thing="image", value=image)
    return PostgresServer(**{**facts.to_state(), "version": version})


def _configure(*, host: str | None) -> None:
    """The run's own settings, whatever the environment said when testcontainers was imported."""
    testcontainers_config.ryuk_disabled = True
    testcontainers_config.connection_mode_override = ConnectionMode.docker_host
    if testcontainers_config.tc_host_override is None:
        testcontainers_config.tc_host_override = host


def _remove_partial(engine: Engine, name: str, log: Path) -> None:
    try:
        engine.remove(name, log=log)
    except EngineError as error:
        sys.stderr.write(f"blackstart: container={name}: {error}; try: docker rm -f {name}\n")
