"""One worker from its first visible act to its last: the order in which things start and end.

Start: own server and models, then register once, then the tunnel, then the heartbeat. Nothing is visible to the
frontends before registration, and settings, manifests and credential were all good before that. The first beat gives
the first dial a head start of one interval at most: it waits for no tunnel.
End: not ready, go-away, wait for the streams, stop the models, exit.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import uuid
from typing import TYPE_CHECKING

from inference_fleet.backends.serving import server_of
from inference_fleet.roster.wire import Registration
from inference_fleet.settings import Deadline
from inference_fleet.telemetry.lag import sample_loop_lag
from inference_fleet.telemetry.metrics import Metrics
from inference_fleet.tunnel import counted
from inference_fleet.tunnel.worker import serve_streams
from inference_fleet.worker.app import App, Readiness
from inference_fleet.worker.epochs import EpochFile
from inference_fleet.worker.frontends import Frontends, Rotation, trust
from inference_fleet.worker.heartbeat import Identity, beat
from inference_fleet.worker.lifecycle import Phase
from inference_fleet.worker.registration import RegistrationRejected, register
from inference_fleet.worker.resolver import resolver
from inference_fleet.worker.supervisor import Supervisor
from inference_fleet.worker.tunnel import DIAL_OUTCOMES, TunnelLoop

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence

    from inference_fleet.backends.manifest import Manifest
    from inference_fleet.settings import WorkerSettings
    from inference_fleet.worker.credential import Credential

_log = logging.getLogger("blackstart.worker")


class Worker:
    """One run of a worker; `run()` gives the exit code."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        manifests: Sequence[Manifest],
        credential: Credential,
        listener: socket.socket,
    ) -> None:
        self.boot_id = str(uuid.uuid4())
        self._settings = settings
        self._timings = settings.timings
        self._credential = credential
        self._listener = listener
        self._metrics = Metrics()
        self._readiness = Readiness()
        self._supervisor = Supervisor(manifests, settings=settings)
        self._tunnel: TunnelLoop | None = None
        self._stop = asyncio.Event()
        self._observe()

    async def run(self) -> int:
        """Work until SIGTERM or SIGINT (0), or until the frontends refuse this worker for good (1)."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        server = server_of(
            App(readiness=self._readiness, metrics=self._metrics), keep_alive_s=self._timings.request_s
        )
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve(sockets=[self._listener]), name="worker http")
            models = group.create_task(self._supervisor.run(), name="worker models")
            lag = group.create_task(
                sample_loop_lag(every_s=self._timings.loop_lag_sample_s, report=self._metrics.loop_lag.set),
                name="worker lag",
            )
            joining = group.create_task(self._join(), name="worker join")
            stopping = group.create_task(self._stop.wait(), name="worker stop")
            await asyncio.wait({joining, stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
            code = await self._leave(joining)
            self._supervisor.stop()
            await models
            lag.cancel()
            stopping.cancel()
            server.should_exit = server.force_exit = True
            await serving
        _log.info("worker %s: stopped with exit status %d", self._settings.node_name, code)
        return code

    async def _join(self) -> int:
        settings = self._settings
        rotation = Rotation(settings.frontend_urls, node_name=settings.node_name)
        async with Frontends.connect(settings) as frontends:
            try:
                registered = await register(
                    frontends,
                    rotation,
                    self._registration(),
                    token=settings.registration_token,
                    timings=self._timings,
                )
            except RegistrationRejected as rejected:
                _log.error("%s", rejected)
                return 1
            _log.info(
                "registered as node %s (%s, %s), boot %s",
                registered.id,
                registered.name,
                registered.status,
                self.boot_id,
            )
            identity = Identity(
                node_id=registered.id, boot_id=self.boot_id, credential=self._credential.secret
            )
            tunnel = self._tunnel = self._readiness.tunnel = self._tunnel_of(identity)
            async with asyncio.TaskGroup() as group:
                holding = group.create_task(tunnel.run(), name="worker tunnel")
                await tunnel.wait_dialled(within_s=self._timings.heartbeat_s)
                beating = group.create_task(
                    beat(
                        frontends,
                        Rotation(settings.frontend_urls, node_name=settings.node_name),
                        identity=identity,
                        reports=self._supervisor.reports,
                        changed=self._supervisor.changed,
                        timings=self._timings,
                    ),
                    name="worker heartbeat",
                )
                await holding
                beating.cancel()
        return 0

    async def _leave(self, joining: asyncio.Task[int]) -> int:
        """Not ready, then off the tunnel as gently as the time to stop allows."""
        self._readiness.stopping = True
        if joining.done():
            return joining.result()
        if self._tunnel is None:
            joining.cancel()
            return 0
        patience_s = max(0.0, self._timings.shutdown_s - self._timings.backend_stop_s)
        self._tunnel.leave(Deadline.after(min(self._timings.drain_wait_s, patience_s)))
        return await joining

    def _registration(self) -> Registration:
        return Registration(
            name=self._settings.node_name,
            node_type=self._settings.node_type,
            boot_id=self.boot_id,
            credential_sha256=self._credential.sha256,
        )

    def _tunnel_of(self, identity: Identity) -> TunnelLoop:
        settings = self._settings
        epochs = EpochFile(settings.credential_file)
        seen = epochs.load()
        resolve = resolver(
            http_port=settings.http_port,
            supervisor=self._supervisor if settings.node_type == "backend" else None,
        )
        return TunnelLoop(
            identity=identity,
            rotation=Rotation(settings.frontend_urls, node_name=settings.node_name),
            on_stream=serve_streams(
                node=identity.node_id,
                seen=seen,
                resolve=resolve,
                timings=self._timings,
                heard=self._supervisor.heard,
            ),
            seen=seen,
            epochs=epochs,
            timings=self._timings,
            metrics=self._metrics,
            trust=trust(settings.frontend_urls),
        )

    def _observe(self) -> None:
        for outcome in DIAL_OUTCOMES:
            self._metrics.reconnects.labels(outcome)
        counted(self._metrics)  # its labels are there before any session is
        observe = self._metrics.observe
        observe(
            "blackstart_tunnels",
            "Tunnels a frontend can open streams on",
            lambda: float(self._tunnel is not None and self._tunnel.connected),
        )
        observe(
            "blackstart_streams_open",
            "Streams on this worker's tunnels",
            lambda: float(self._tunnel.streams_open if self._tunnel else 0),
        )
        self._metrics.observe_family(
            "blackstart_models",
            "Models by the phase of their process",
            "phase",
            lambda: {phase.value: float(self._supervisor.count(phase)) for phase in Phase},
        )
