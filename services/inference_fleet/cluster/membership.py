"""The beat of one replica: it says that it is here, settles what it holds, and records who is not here any more."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from typing import TYPE_CHECKING

from inference_fleet.cluster.contact import Contact
from inference_fleet.cluster.instances import InstanceIdTaken
from inference_fleet.store import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from inference_fleet.cluster.registry import Registry

_log = logging.getLogger(__name__)


class Membership:
    """Runs the beat until it is cancelled: heartbeat, re-assertion, sweep, purge, then whoever asked for the tick.

    | what happens                        | what the beat does                                                   |
    |-------------------------------------|----------------------------------------------------------------------|
    | the database is out                 | says so once, keeps every session, goes on asking, says when it is back |
    | it was out for about the liveness   | sweeps nobody until the others have had the time to say that they live |
    | this replica's row was swept        | writes it anew and takes its connections back                        |
    | a session's epoch has moved on      | calls `on_lost(node_id, epoch)`                                      |
    | another process uses this id        | says so once a change; it neither sweeps nor re-asserts meanwhile    |
    | the replica has no address          | names, every `missing_address_notice_s`, the workers only it reaches |
    """

    def __init__(
        self,
        registry: Registry,
        *,
        held: Callable[[], Mapping[str, int]],
        on_lost: Callable[[str, int], Awaitable[None] | None],
        on_tick: Sequence[Callable[[], Awaitable[None]]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`held` gives the sessions of this replica, node id to epoch; `clock` is monotonic seconds."""
        self._registry = registry
        self._held = held
        self._on_lost = on_lost
        self._on_tick = tuple(on_tick)
        self._clock = clock
        timings = registry.timings
        self._contact = Contact(
            longest_gap_s=timings.instance_liveness_s - timings.instance_beat_s,
            doubt_s=timings.instance_liveness_s,
        )
        self._trouble = ""
        self._trouble_since = 0.0
        self._noticed_at: float | None = None

    async def run(self) -> None:
        """Beat until cancelled; one beat at a time, `instance_beat_s` between their starts where they fit."""
        beat_s = self._registry.timings.instance_beat_s
        while True:
            started = self._clock()
            await self.beat()
            await asyncio.sleep(max(0.0, started + beat_s - self._clock()))

    async def beat(self) -> None:
        """One beat. An outage ends it early and is remembered, not raised."""
        self._notice_missing_address()
        try:
            await self._keep_house()
            for callback in self._on_tick:
                await _guarded(callback(), "a callback of the tick")
        except DatabaseUnavailable as error:
            self._in_trouble("database-unavailable", str(error))
        except InstanceIdTaken as error:
            self._in_trouble("instance-id-taken", str(error))
        else:
            self._recovered()

    async def _keep_house(self) -> None:
        registry = self._registry
        if not await registry.heartbeat():
            _log.warning("instance row had been swept and is written anew: instance=%s", registry.instance_id)
        believes = self._contact.made(self._clock())
        settled = await registry.reassert(self._held())
        for node_id, epoch in settled.retaken:
            if self._held().get(node_id) == epoch:
                _log.warning("ownership taken back: node=%s epoch=%d", node_id, epoch)
            else:  # it ended, and was released, while its row was being read
                await registry.release(node_id, epoch)
        for node_id, epoch in settled.orphaned:
            _log.warning("ownership without a session let go: node=%s epoch=%d", node_id, epoch)
        for node_id, epoch in settled.lost:
            _log.warning("ownership has moved on, closing the session: node=%s epoch=%d", node_id, epoch)
            outcome = self._on_lost(node_id, epoch)
            if inspect.isawaitable(outcome):
                await _guarded(outcome, f"closing the session of node {node_id}")
        if believes:
            await self._sweep()
        if purged := await registry.purge():
            _log.info("departed connection rows past retention deleted=%d", len(purged))

    async def _sweep(self) -> None:
        swept = await self._registry.sweep()
        if swept.cleared or swept.deleted:
            _log.warning(
                "dead replicas swept: instance rows deleted=%d (%s), connection rows left behind as departed=%d (%s)",
                len(swept.deleted),
                ", ".join(swept.deleted) or "none",
                len(swept.cleared),
                ", ".join(f"{node_id} of {owner}" for node_id, owner in swept.cleared) or "none",
            )

    def _notice_missing_address(self) -> None:
        if self._registry.address:
            return
        now = self._clock()
        due = self._noticed_at is None or (
            now - self._noticed_at >= self._registry.timings.missing_address_notice_s
        )
        held = sorted(self._held())
        if not due or not held:
            return
        self._noticed_at = now
        _log.warning(
            "instance %s has no address other replicas can dial (BLACKSTART_ADVERTISE_ADDRESS is "
            "set to nothing, or unset and none was found): "
            "only it can reach workers=%d: %s",
            self._registry.instance_id,
            len(held),
            ", ".join(held),
        )

    def _in_trouble(self, kind: str, text: str) -> None:
        if self._trouble == kind:
            return
        self._trouble, self._trouble_since = kind, self._clock()
        _log.error("%s: %s; sessions kept=%d", kind, text, len(self._held()))

    def _recovered(self) -> None:
        if self._trouble:
            _log.warning("%s is over after %.1f s", self._trouble, self._clock() - self._trouble_since)
            self._trouble = ""


async def _guarded(work: Awaitable[None], what: str) -> None:
    """Await what others hung on the beat: an outage is the beat's affair, any other failure must not stop it."""
    try:
        await work
    except DatabaseUnavailable:
        raise
    except Exception:  # noqa: BLE001  # logged with its trace; the beat carries everybody else
        _log.exception("membership: %s failed", what)
