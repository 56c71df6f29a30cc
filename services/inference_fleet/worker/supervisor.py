"""Keeps a process of every model running, and knows which port and process key serve right now."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inference_fleet.backends.command import argv, environment
from inference_fleet.roster.wire import ModelReport
from inference_fleet.settings import Deadline
from inference_fleet.worker.children import Child
from inference_fleet.worker.lifecycle import REPORTED, SERVING, Ladder, Phase, Step, after
from inference_fleet.worker.liveness import falls_silent
from inference_fleet.worker.logfiles import LogFolder
from inference_fleet.worker.ports import PortBlock, PortsExhausted, listens
from inference_fleet.worker.probe import status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from inference_fleet.backends.manifest import Manifest
    from inference_fleet.settings import WorkerSettings
    from inference_fleet.tunnel.worker import Target

_log = logging.getLogger("blackstart.worker")


@dataclass
class Model:
    """One model of this worker and the process it has now, or had last."""

    manifest: Manifest
    phase: Phase = Phase.IDLE
    ladder: Ladder = field(default_factory=Ladder)
    port: int = 0
    process_key: str = ""

    @property
    def name(self) -> str:
        """The name requests carry."""
        return self.manifest.name

    @property
    def report(self) -> ModelReport | None:
        """What the roster is told; None while there never was a process."""
        state = REPORTED.get(self.phase)
        if state is None or not self.port:
            return None
        return ModelReport(name=self.name, port=self.port, process_key=self.process_key, state=state)


class Supervisor:
    """Runs the models of one worker: `run()` until `stop()`; each model has one task and one state machine."""

    def __init__(
        self,
        manifests: Sequence[Manifest],
        *,
        settings: WorkerSettings,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.models = [Model(manifest) for manifest in manifests]
        self.changed = asyncio.Event()
        self._settings = settings
        self._timings = settings.timings
        self._draw = draw
        self._heard: Counter[int] = Counter()
        self._ports = PortBlock(settings.port_base, settings.port_max)
        self._logs = LogFolder(settings.data_dir / "logs")
        self._numbers = itertools.count(self._logs.last_number() + 1)
        self._stopping = asyncio.Event()

    def reports(self) -> list[ModelReport]:
        """Every model that has a process, or had one and is about to have another."""
        return [report for model in self.models if (report := model.report) is not None]

    def serves(self, port: int, process_key: str) -> bool:
        """Whether this very process is ready: a port alone may be another model's by now."""
        return any(
            model.phase in SERVING and model.port == port and model.process_key == process_key
            for model in self.models
        )

    def heard(self, target: Target) -> None:
        """What listens there said something on a stream."""
        self._heard[target[1]] += 1

    def count(self, phase: Phase) -> int:
        """How many models stand there."""
        return sum(model.phase is phase for model in self.models)

    async def run(self) -> None:
        """Keep every model running; returns after `stop()`, when the last process is gone."""
        async with asyncio.TaskGroup() as group:
            keepers = [
                group.create_task(self._keep(model), name=f"model {model.name}") for model in self.models
            ]
            bounding = group.create_task(self._bound_logs(), name="model logs")
            await self._stopping.wait()
            for keeper in keepers:
                await keeper
            bounding.cancel()

    def stop(self) -> None:
        """End every process: SIGTERM, `backend_stop_s`, SIGKILL."""
        self._stopping.set()

    # ---- one model

    async def _keep(self, model: Model) -> None:
        while not self._stopping.is_set():
            ready_for_s = await self._live(model)
            if self._stopping.is_set():
                break
            model.ladder = model.ladder.fallen(ready_for_s=ready_for_s, timings=self._timings)
            pause_s = model.ladder.pause_s(timings=self._timings, draw=self._draw())
            _log.info("model %s: next start in %.2f s (rung %d)", model.name, pause_s, model.ladder.rungs)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
        if model.phase is not Phase.STOPPED:
            self._step(model, Step.STOP)

    async def _live(self, model: Model) -> float:
        """One process from start to end; gives how long it was ready."""
        self._step(model, Step.START, told=False)
        try:
            port = self._ports.take()
        except PortsExhausted as error:
            _log.error("model %s cannot start: %s", model.name, error)
            self._step(model, Step.EXITS)
            return 0.0
        try:
            return await self._live_on(model, port)
        finally:
            self._ports.give_back(port)
            self._heard.pop(port, None)

    async def _live_on(self, model: Model, port: int) -> float:
        number = next(self._numbers)
        model.port, model.process_key = port, f"{model.name}#{number}"
        try:
            child = self._start(model, port, number)
        except OSError as error:
            _log.error("model %s cannot start: %s", model.name, error)
            self._step(model, Step.EXITS)
            return 0.0
        _log.info("model %s: process %s is pid %d on port %d", model.name, model.process_key, child.pid, port)
        self.changed.set()
        loop = asyncio.get_running_loop()
        ready_at: float | None = None
        try:
            if await self._becomes_ready(model, child):
                ready_at = loop.time()
                await _first(child.exited(), self._stopping.wait(), self._falls_silent(model, child))
            if child.alive:
                await self._end(model, child)
            if not self._stopping.is_set():
                tail = self._logs.tail(model.name, number)
                _log.warning(
                    "model %s: %s ended: %s; its last words:\n%s",
                    model.name,
                    model.process_key,
                    child.ending,
                    tail,
                )
            self._step(model, Step.EXITS)
            return loop.time() - ready_at if ready_at is not None else 0.0
        finally:
            child.kill_now()

    def _start(self, model: Model, port: int, number: int) -> Child:
        data_dir = self._settings.data_dir / "models" / model.name
        data_dir.mkdir(parents=True, exist_ok=True)
        line = argv(model.manifest, port=port, data_dir=data_dir, parent_pid=os.getpid())
        with self._logs.open(model.name, number) as log:
            return Child.start(line, env=environment(os.environ), cwd=model.manifest.folder, log=log)

    async def _becomes_ready(self, model: Model, child: Child) -> bool:
        """Whether it answered; False when it exited, was too late, or the worker stops."""
        try:
            async with asyncio.timeout(self._timings.backend_start_s):
                await _first(child.exited(), self._stopping.wait(), self._answers(model, child))
        except TimeoutError:
            _log.warning(
                "model %s: no 2xx from %s within backend_start_s (%g s)",
                model.name,
                model.manifest.ready_path,
                self._timings.backend_start_s,
            )
            self._step(model, Step.LATE)
            return False
        if not child.alive or self._stopping.is_set():
            return False
        self._step(model, Step.ANSWERS)
        _log.info("model %s: %s is ready", model.name, model.process_key)
        return True

    async def _answers(self, model: Model, child: Child) -> None:
        while True:
            status = await status_of(
                model.port, model.manifest.ready_path, within_s=self._timings.backend_probe_s
            )
            if status is not None and 200 <= status < 300 and listens(child.pid, model.port):
                return
            await asyncio.sleep(self._timings.backend_poll_s)

    async def _falls_silent(self, model: Model, child: Child) -> None:
        """Return once a ready process says nothing any more: it hangs, and is to be ended."""
        port, path, silent_s = model.port, model.manifest.ready_path, self._timings.backend_silent_s

        async def answers(within_s: float) -> bool:
            return await status_of(port, path, within_s=within_s) is not None

        await falls_silent(answers, lambda: self._heard[port], silent_s=silent_s)
        if child.alive and not self._stopping.is_set():
            _log.warning(
                "model %s: %s hangs: nothing came from it for backend_silent_s (%g s); it is ended",
                model.name,
                model.process_key,
                silent_s,
            )
            self._step(model, Step.LATE)

    async def _end(self, model: Model, child: Child) -> None:
        if self._stopping.is_set():
            self._step(model, Step.STOP)
        if not await child.stop(deadline=Deadline.after(self._timings.backend_stop_s)):
            _log.warning("model %s: SIGTERM was not enough within backend_stop_s", model.name)

    def _step(self, model: Model, step: Step, *, told: bool = True) -> None:
        model.phase = after(model.phase, step)
        if told:
            self.changed.set()

    async def _bound_logs(self) -> None:
        while True:
            await asyncio.sleep(self._timings.heartbeat_s)
            for model in self.models:
                _, _, number = model.process_key.rpartition("#")
                if number:
                    await self._bound_log(model, int(number))

    async def _bound_log(self, model: Model, number: int) -> None:
        """A full or a broken disk may keep a file from being measured or cut; it must not end the models."""
        try:
            if self._logs.oversized(model.name, number):
                await asyncio.to_thread(self._logs.cut, model.name, number)
        except OSError as error:
            _log.warning("%s could not be cut: %s", self._logs.file(model.name, number), error)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of them is through; the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
