"""Keeping one tunnel to a frontend: dial, serve its streams, and dial again when it ends or is about to.

| what happens                          | what the worker does                                                     |
|---------------------------------------|--------------------------------------------------------------------------|
| no answer, or 5xx                     | next address, longer pause                                               |
| 401                                   | says both causes, keeps dialling slowly; never registers again           |
| 409 `boot_conflict`                   | names both boots, waits `Retry-After`                                    |
| 409 `epoch_leap`                      | says what it has seen and what to look for, waits `Retry-After`          |
| the session dies                      | dials again; the pause grows unless the session lasted                   |
| the frontend sends go-away            | dials another at once; what runs on the old one has `drain_wait_s` left  |
| this worker stops                     | sends go-away, waits for its streams, closes                             |
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from inference_fleet.settings import Deadline
from inference_fleet.telemetry.logs import bound
from inference_fleet.tunnel import DialFailed, DialRefused, ReconnectSchedule, Session, counted
from inference_fleet.tunnel.worker import dial
from inference_fleet.worker.frontends import Answer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from inference_fleet.settings import Timings
    from inference_fleet.telemetry.metrics import Metrics
    from inference_fleet.tunnel import Joint, Stream
    from inference_fleet.tunnel.worker import Dialled, SeenEpoch
    from inference_fleet.worker.epochs import EpochFile
    from inference_fleet.worker.frontends import Rotation
    from inference_fleet.worker.heartbeat import Identity

DialOutcome: TypeAlias = Literal["connected", "failed", "unauthorized", "conflict", "refused"]
DIAL_OUTCOMES: Final[tuple[DialOutcome, ...]] = get_args(DialOutcome)

_log = logging.getLogger("blackstart.worker")


class TunnelLoop:
    """The one tunnel of a worker; `run()` until `leave()`."""

    def __init__(
        self,
        *,
        identity: Identity,
        rotation: Rotation,
        on_stream: Callable[[Stream], Awaitable[Joint | None]],
        seen: SeenEpoch,
        epochs: EpochFile,
        timings: Timings,
        metrics: Metrics,
        trust: ssl.SSLContext | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        """`trust` is given where an address asks for TLS."""
        self.why_not = "no frontend was dialled yet"
        self._identity = identity
        self._rotation = rotation
        self._on_stream = on_stream
        self._seen = seen
        self._epochs = epochs
        self._timings = timings
        self._metrics = metrics
        self._trust = trust
        self._schedule = ReconnectSchedule(
            min_s=timings.reconnect_backoff_min_s,
            max_s=timings.reconnect_backoff_max_s,
            reset_after_s=timings.reconnect_reset_after_s,
            draw=draw,
        )
        self._current: Session | None = None
        self._sessions: dict[Session, asyncio.Task[None]] = {}
        self._leaving = asyncio.Event()
        self._dialled = asyncio.Event()
        self._deadline = Deadline.after(timings.drain_wait_s)

    @property
    def connected(self) -> bool:
        """Whether a frontend can open streams now; false from the first go-away, close or death on."""
        return self._current is not None and self._current.connected and not self._leaving.is_set()

    @property
    def streams_open(self) -> int:
        """Streams on every session that has not ended."""
        return sum(session.streams_open for session in self._sessions)

    def leave(self, deadline: Deadline) -> None:
        """Take no new streams; `run()` returns when the last one ended, or at the deadline."""
        self._deadline = deadline
        self._leaving.set()
        self._dialled.set()  # nobody has to wait for a dial that may never be made

    async def wait_dialled(self, *, within_s: float) -> None:
        """Return once the first dial was answered in whatever way, or failed, or `within_s` are over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._dialled.wait()

    async def run(self) -> None:
        """Hold a tunnel until `leave()`."""
        async with asyncio.TaskGroup() as group:
            dialling = group.create_task(self._dial_on(group), name="tunnel dial")
            await self._leaving.wait()
            dialling.cancel()
            for session in self._sessions:
                session.go_away("this worker stops")
            await self._settle()

    async def _settle(self) -> None:
        """Close each session once its streams ended; at the deadline cut what is left, goodbyes included."""
        try:
            async with asyncio.timeout(self._deadline.remaining_s):
                for session, driving in tuple(self._sessions.items()):
                    await session.drained(self._deadline)
                    await session.close()
                    await asyncio.wait({driving})
        except TimeoutError:
            _log.warning("tunnel: %d streams did not end in time and are cut", self.streams_open)
            for driving in self._sessions.values():
                driving.cancel()

    async def _dial_on(self, group: asyncio.TaskGroup) -> None:
        while True:
            pause_s = await self._hold(group)
            await asyncio.sleep(pause_s)

    async def _hold(self, group: asyncio.TaskGroup) -> float:
        """Dial once and hold what comes of it; gives the pause before the next dial."""
        url = self._rotation.current
        try:
            dialled = await dial(
                url,
                node_id=self._identity.node_id,
                credential=self._identity.credential,
                boot_id=self._identity.boot_id,
                seen_epoch=self._seen.value,
                timings=self._timings,
                ssl=self._trust if url.startswith("https:") else None,
            )
        except DialRefused as refused:
            return self._refused(refused)
        except DialFailed as failed:
            self._count("failed")
            return self._unreached(f"the dial failed: {failed}")
        finally:
            self._dialled.set()
        self._count("connected")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        session = await self._begin(group, dialled, url)
        await session.wait_leaving()
        lasted_s = loop.time() - begun
        # an idle one ends as soon as its peer goes away
        if session.ending is not None and not session.peer_left:
            return self._unreached(f"the session ended: {session.ending.cause}", lasted_s=lasted_s)
        # a replica on its way out, and the next one may be a better home
        self.why_not = f"{url} went away"
        group.create_task(
            self._retire(session, Deadline.after(self._timings.drain_wait_s)), name="tunnel drain"
        )
        self._rotation.advance()
        wait_s = self._schedule.next_wait_s(lasted_s=lasted_s)
        return 0.0 if lasted_s >= self._timings.reconnect_reset_after_s else wait_s

    async def _begin(self, group: asyncio.TaskGroup, dialled: Dialled, url: str) -> Session:
        self._seen.learn(dialled.epoch)
        session = Session(
            dialled.carrier,
            client=True,
            timings=self._timings,
            on_stream=self._on_stream,
            name=f"{self._identity.node_id} epoch {dialled.epoch}",
            notices=counted(self._metrics),
        )
        self._current = session
        with bound(node=self._identity.node_id, epoch=dialled.epoch):
            self._sessions[session] = group.create_task(
                self._drive(session), name=f"tunnel epoch {dialled.epoch}"
            )
            _log.info("tunnel: connected to %s with epoch %d", url, dialled.epoch)
        try:
            await asyncio.to_thread(self._epochs.keep, self._seen)
        except OSError as error:
            _log.warning(
                "%s cannot be written (%s); the next start shows an older epoch", self._epochs.path, error
            )
        return session

    async def _drive(self, session: Session) -> None:
        try:
            ending = await session.run()
            _log.log(logging.INFO if ending.clean else logging.WARNING, "tunnel: ended: %s", ending.cause)
        finally:
            # only now, with its streams gone, is it forgotten; it has read as disconnected for longer
            del self._sessions[session]
            if self._current is session:
                self._current = None

    async def _retire(self, session: Session, deadline: Deadline) -> None:
        if not await session.drained(deadline):
            _log.warning("tunnel: %d streams did not end in time and are cut", session.streams_open)
        await session.close()

    def _refused(self, refused: DialRefused) -> float:
        answer = Answer(
            url=self._rotation.current,
            status=refused.status,
            body=refused.body.encode(),
            retry_after_s=refused.retry_after_s,
        )
        quoted = f"HTTP {answer.status}: {answer.quote(self._identity.credential)}"
        if answer.status == 401:
            self._count("unauthorized")
            self._say(
                f"refused with {quoted}. Either another worker registered under this node's name and its credential "
                "replaced ours, or ours was revoked (or the database restored from before it). Nothing can reach "
                "this worker until that is settled; it keeps dialling and does not register again"
            )
            return self._schedule.next_wait_s()
        if answer.status == 409:
            self._count("conflict" if answer.code == "boot_conflict" else "refused")
            pause_s = self._conflict_pause_s(answer.retry_after_s)
            self._say(f"{self._conflict_of(answer.code)}: {quoted}; dialling again in {pause_s:.1f} s")
            return pause_s
        self._count("refused")
        return self._unreached(f"refused with {quoted}")

    def _conflict_of(self, code: str) -> str:
        if code == "boot_conflict":
            return f"another boot of this node holds the tunnel; this boot is {self._identity.boot_id}"
        if code == "epoch_leap":
            return (
                f"this worker has seen epoch {self._seen.value}, which the fleet's database cannot have given out "
                "(is it another fleet's, or restored from an older copy?)"
            )
        return f"refused for a conflict this worker does not know ({code or 'no code'})"

    def _conflict_pause_s(self, retry_after_s: float | None) -> float:
        wished = self._timings.conflict_damping_s if retry_after_s is None else retry_after_s
        return min(max(wished, self._timings.reconnect_backoff_min_s), 2 * self._timings.conflict_damping_s)

    def _unreached(self, why: str, *, lasted_s: float = 0.0) -> float:
        pause_s = self._schedule.next_wait_s(lasted_s=lasted_s)
        url = self._rotation.current
        self._rotation.advance()
        self._say(f"{url}: {why}; next dial in {pause_s:.2f} s")
        return pause_s

    def _say(self, why: str) -> None:
        self.why_not = why
        _log.warning("tunnel: %s", why)

    def _count(self, outcome: DialOutcome) -> None:
        self._metrics.reconnects.labels(outcome).inc()
