"""Many workers in one process: the production dial and the production answer to streams, once for each tunnel."""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import os
import secrets
import signal
import sys
import uuid
from typing import TYPE_CHECKING, Any

from bench.machine import own_bytes, raise_file_limit
from bench.remote import answering
from inference_fleet.roster.wire import Registration
from inference_fleet.settings import WorkerSettings
from inference_fleet.settings.loopback import LOOPBACK
from inference_fleet.telemetry.logs import configure_logs
from inference_fleet.tunnel import Session
from inference_fleet.tunnel.worker import SeenEpoch, dial, serve_streams
from inference_fleet.worker.frontends import Frontends, Rotation, trust
from inference_fleet.worker.registration import register

if TYPE_CHECKING:
    from bench.remote import AsyncCalls


class Crowd:
    """Its tunnels, which stay up until the process ends."""

    def __init__(self, settings: WorkerSettings, frontends: Frontends, group: asyncio.TaskGroup) -> None:
        self._settings = settings
        self._frontends = frontends
        self._group = group
        self._url = settings.frontend_urls[0]
        self._trust = trust(settings.frontend_urls) if self._url.startswith("https:") else None
        self._sessions: list[Session] = []

    def calls(self) -> AsyncCalls:
        """By name."""
        return {"hello": self.hello, "dial": self.dial, "settle": self.settle, "standing": self.standing}

    async def hello(self) -> str:
        """It is there."""
        return "crowd"

    async def settle(self) -> int:
        """Collect garbage, then say how much memory this process has of its own."""
        gc.collect()
        return own_bytes(os.getpid())

    async def standing(self) -> dict[str, int]:
        """Tunnels that stand and streams open in them."""
        return {
            "tunnels": sum(session.connected for session in self._sessions),
            "streams": sum(session.streams_open for session in self._sessions),
        }

    async def dial(self, *, count: int) -> list[str]:
        """So many more nodes, each with its tunnel; their ids."""
        return [await self._join() for _ in range(count)]

    async def _join(self) -> str:
        timings = self._settings.timings
        name = f"{self._settings.node_name}-{len(self._sessions)}"
        credential, boot_id = secrets.token_hex(32), str(uuid.uuid4())
        registered = await register(
            self._frontends,
            Rotation([self._url], node_name=name),
            Registration(
                name=name,
                node_type="backend",
                boot_id=boot_id,
                credential_sha256=hashlib.sha256(credential.encode()).hexdigest(),
            ),
            token=self._settings.registration_token,
            timings=timings,
        )
        dialled = await dial(
            self._url,
            node_id=registered.id,
            credential=credential,
            boot_id=boot_id,
            seen_epoch=0,
            timings=timings,
            ssl=self._trust,
        )
        session = Session(
            dialled.carrier,
            client=True,
            timings=timings,
            on_stream=serve_streams(
                node=registered.id, seen=SeenEpoch(value=dialled.epoch), resolve=_anywhere, timings=timings
            ),
            name=name,
        )
        self._sessions.append(session)
        self._group.create_task(session.run(), name=f"tunnel {name}")
        return registered.id


def _anywhere(tag: str, target: str, process_key: str | None) -> tuple[str, int]:
    del tag, process_key  # only this bench asks
    return LOOPBACK, int(target.rpartition(":")[2])


async def serve(settings: WorkerSettings, *, control_port: int) -> int:
    """Run until SIGTERM."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    async with Frontends.connect(settings) as frontends, asyncio.TaskGroup() as group:
        crowd = Crowd(settings, frontends, group)
        async with answering(control_port, crowd.calls()):
            await told.wait()
        this: Any = asyncio.current_task()
        for task in asyncio.all_tasks() - {this}:
            task.cancel()
    return 0


def main() -> int:
    """`python -m bench.crowd --port N`, configured like a worker by `BLACKSTART_*` variables."""
    parser = argparse.ArgumentParser(prog="python -m bench.crowd")
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    raise_file_limit()
    settings = WorkerSettings.from_environ(os.environ)
    configure_logs(instance=settings.node_name, secrets=[settings.registration_token])
    return asyncio.run(serve(settings, control_port=port))


if __name__ == "__main__":
    sys.exit(main())
