"""One babbler process: its listener, its server, its ending."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from inference_fleet.backends.babbler.app import App
from inference_fleet.backends.babbler.generation import Speaker
from inference_fleet.backends.serving import PortTaken, listen, serve_until_signal, server_of
from inference_fleet.settings import SettingsError, Timings
from inference_fleet.settings.commands import complain
from inference_fleet.settings.loopback import LOOPBACK

if TYPE_CHECKING:
    from inference_fleet.backends.babbler.model import Model

_log = logging.getLogger("blackstart.babbler")


def serve(model: Model, *, port: int, name: str, tokens_per_second: float, seed: int | None) -> int:
    """Answer until SIGTERM; the exit code."""
    try:
        timings = Timings.from_environ(os.environ)
        listener = listen(LOOPBACK, port)
    except SettingsError as error:
        return complain(str(error))
    except PortTaken as error:
        return complain(f"--port={port}: {error}; try: a port nobody listens on")
    speaker = Speaker(name=name, model=model, tokens_per_second=tokens_per_second, seed=seed)
    server = server_of(App(speaker), keep_alive_s=timings.request_s)
    _log.info("%s (%s) answers on %s:%d", name, model.fingerprint, LOOPBACK, port)
    with listener:
        asyncio.run(serve_until_signal(server, listener))
    return 0
