"""A migrated database of its own and the moves a story needs; time passes by shifting stamps, never by waiting."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from inference_fleet.cluster import Registry
from inference_fleet.roster import Heartbeat, ModelReport, Registration
from inference_fleet.roster.frontend import Roster
from inference_fleet.settings import Timings
from inference_fleet.store import Database, migrate_sync
from inference_fleet.upkeep import HealthMonitor, Reaper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator


# Windows so wide that no slow machine closes one: in these stories only shifted stamps do.
_WINDOWS = (
    "heartbeat_stale_s",
    "health_lease_s",
    "instance_liveness_s",
    "reconnect_grace_s",
    "departed_retention_floor_s",
    "conflict_damping_s",
)
PATIENT = replace(Timings.drill(), **{name: 40 * getattr(Timings.drill(), name) for name in _WINDOWS})


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class Stage:
    """The open database of one story and its actors; every `age_*` fails when it matched no row."""

    database: Database
    url: str
    timings: Timings
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    def registry(self, instance: str = "a", *, boot: str = "p1", timings: Timings | None = None) -> Registry:
        return Registry(self.database, instance_id=instance, boot_id=boot, timings=timings or self.timings)

    async def replica(
        self,
        instance: str = "a",
        *,
        boot: str = "p1",
        address: str = "10.0.0.1:80",
        timings: Timings | None = None,
    ) -> Registry:
        registry = self.registry(instance, boot=boot, timings=timings)
        await registry.register(address)
        return registry

    def roster(self, instance: str = "a", *, auto_approve: bool = True) -> Roster:
        return Roster(self.database, instance_id=instance, timings=self.timings, auto_approve=auto_approve)

    def monitor(self, holder: str = "a") -> HealthMonitor:
        return HealthMonitor(self.database, holder=holder, timings=self.timings)

    def reaper(self, instance: str = "a") -> Reaper:
        return Reaper(self.database, instance_id=instance)

    async def node(self, name: str = "worker", *models: str) -> str:
        """A registered backend node whose ready models are in its heartbeat."""
        registered = await self.roster().register(self.registration(name))
        await self.roster().heartbeat(registered.id, self.heartbeat(*models))
        return registered.id

    @staticmethod
    def registration(
        name: str = "worker", *, credential: str = "secret", boot: str = "boot-0001"
    ) -> Registration:
        return Registration(
            name=name, node_type="backend", boot_id=boot, credential_sha256=sha256(credential)
        )

    @staticmethod
    def heartbeat(*models: str, boot: str = "boot-0001", state: str = "ready") -> Heartbeat:
        return Heartbeat(
            boot_id=boot,
            models=[
                ModelReport(name=model, port=20051 + place, process_key=f"{model}#{boot}", state=state)
                for place, model in enumerate(models)
            ],
        )

    async def another_database(self, name: str) -> Database:
        database = await Database.open(self.url, timings=self.timings, name=name)
        return await self._stack.enter_async_context(database)

    async def value(self, query: str, **parameters: Any) -> Any:
        row = await self.database.row(query, parameters)
        return None if row is None else next(iter(row.values()))

    async def kill(self, instance: str) -> None:
        """Age a replica past its liveness window."""
        await self.age_instance(instance, self.timings.instance_liveness_s)

    async def age_instance(self, instance: str, by_s: float) -> None:
        await self._age(
            "UPDATE instances SET last_seen = last_seen - %(by)s WHERE id = %(id)s", instance, by_s
        )

    async def age_departure(self, node: str, by_s: float) -> None:
        await self._age(
            "UPDATE connections SET disconnected_at = disconnected_at - %(by)s"
            " WHERE node_id = %(id)s AND disconnected_at IS NOT NULL",
            node,
            by_s,
        )

    async def age_claim(self, node: str, by_s: float) -> None:
        await self._age(
            "UPDATE connections SET connected_at = connected_at - %(by)s WHERE node_id = %(id)s", node, by_s
        )

    async def age_boot_change(self, node: str, by_s: float) -> None:
        await self._age(
            "UPDATE connections SET boot_changed_at = boot_changed_at - %(by)s"
            " WHERE node_id = %(id)s AND boot_changed_at IS NOT NULL",
            node,
            by_s,
        )

    async def age_heartbeat(self, node: str, by_s: float) -> None:
        await self._age(
            "UPDATE nodes SET last_heartbeat = last_heartbeat - %(by)s WHERE id = %(id)s", node, by_s
        )

    async def age_lease(self, name: str, by_s: float) -> None:
        await self._age("UPDATE leases SET expires_at = expires_at - %(by)s WHERE name = %(id)s", name, by_s)

    async def gone(self, node: str) -> None:
        """Age a departed node past the grace."""
        await self.age_departure(node, self.timings.reconnect_grace_s)

    async def silence(self, node: str) -> None:
        """Age a node's heartbeat past the window in which it counts as fresh."""
        await self.age_heartbeat(node, self.timings.heartbeat_stale_s)

    async def _age(self, query: str, key: str, by_s: float) -> None:
        changed = await self.database.change(query, {"id": key, "by": timedelta(seconds=by_s)})
        assert changed == 1, f"ageing {key!r} matched {changed} rows"


class Play:
    """Runs one story on a stage: `play(story)`, or `play(story, timings=...)`."""

    def __init__(self, url: str) -> None:
        self.url = url

    def __call__(self, story: Callable[[Stage], Awaitable[None]], *, timings: Timings | None = None) -> None:
        asyncio.run(self._run(story, timings or PATIENT))

    async def _run(self, story: Callable[[Stage], Awaitable[None]], timings: Timings) -> None:
        async with await Database.open(self.url, timings=timings, name="spec") as database:
            stage = Stage(database, self.url, timings)
            async with stage._stack:
                await story(stage)


@pytest.fixture
def url(infra: Any) -> Iterator[str]:
    """A database of this spec's own, already migrated."""
    database = infra.database(prepare=migrate_sync)
    yield database.url
    database.drop()


@pytest.fixture
def play(url: str) -> Play:
    return Play(url)
