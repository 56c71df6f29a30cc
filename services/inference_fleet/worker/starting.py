"""Everything that can be wrong with a worker is found here, before anybody can see it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from inference_fleet.backends.command import check_program
from inference_fleet.backends.manifest import ManifestError, read_manifests
from inference_fleet.backends.serving import PortTaken, listen
from inference_fleet.settings import SettingsError
from inference_fleet.settings.loopback import LOOPBACK
from inference_fleet.telemetry.logs import configure_logs
from inference_fleet.worker.credential import Credential, CredentialError, load_or_make
from inference_fleet.worker.ports import warn_of_ephemeral_overlap
from inference_fleet.worker.running import Worker

if TYPE_CHECKING:
    import socket

    from inference_fleet.backends.manifest import Manifest
    from inference_fleet.settings import WorkerSettings


class BadStart(Exception):
    """This worker cannot start as it is set up; the text names the thing and the remedy."""


def start(settings: WorkerSettings) -> int:
    """Check, then work until the end; the exit code. What is wrong is a `BadStart` or a `SettingsError`."""
    configure_logs(instance=settings.node_name, secrets=[settings.registration_token])
    _check_data_dir(settings)
    manifests = _manifests(settings)
    credential = _credential(settings)
    configure_logs(instance=settings.node_name, secrets=[settings.registration_token, credential.secret])
    warn_of_ephemeral_overlap(settings.http_port, settings.port_max)
    with _listener(settings) as listener:
        return asyncio.run(_work(settings, manifests=manifests, credential=credential, listener=listener))


async def _work(
    settings: WorkerSettings,
    *,
    manifests: tuple[Manifest, ...],
    credential: Credential,
    listener: socket.socket,
) -> int:
    return await Worker(settings, manifests=manifests, credential=credential, listener=listener).run()


def _check_data_dir(settings: WorkerSettings) -> None:
    """Whatever lies in it would be blamed otherwise."""
    lowest = next(folder for folder in (settings.data_dir, *settings.data_dir.parents) if folder.exists())
    if not lowest.is_dir():
        raise SettingsError(
            "BLACKSTART_DATA_DIR",
            settings.data_dir,
            f"a folder this process can write ({lowest} is a file)",
            remedy="name another folder, or move that file away",
        )


def _manifests(settings: WorkerSettings) -> tuple[Manifest, ...]:
    if settings.node_type != "backend":
        return ()  # an agent runs no models, whatever lies in the folder
    try:
        manifests = read_manifests(settings.models_dir)
        for manifest in manifests:
            check_program(manifest)
    except ManifestError as error:
        raise BadStart(f"{error}; try: that, or move the model out of {settings.models_dir}") from None
    return manifests


def _credential(settings: WorkerSettings) -> Credential:
    try:
        return load_or_make(settings.credential_file)
    except CredentialError as error:
        raise BadStart(str(error)) from None
    except OSError as error:
        in_data_dir = settings.credential_file.parent == settings.data_dir
        name = "DATA_DIR" if in_data_dir else "NODE_CREDENTIAL_FILE"
        path = settings.data_dir if in_data_dir else settings.credential_file
        raise BadStart(
            f"BLACKSTART_{name}={path}: the node's credential cannot be made there ({error.strerror}); "
            "try: a folder this user may write to"
        ) from None


def _listener(settings: WorkerSettings) -> socket.socket:
    try:
        return listen(LOOPBACK, settings.http_port)
    except PortTaken as error:
        raise BadStart(
            f"BLACKSTART_PORT_BASE={settings.port_base}: the worker's own server needs the port before it: {error}; "
            "try: another BLACKSTART_PORT_BASE, or end who listens there"
        ) from None
