"""One replica's parts, made in order, run together, and taken down in the reverse order."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from typing import TYPE_CHECKING

from inference_fleet.auth import Accounts, ApiKeys, Limiter, Passwords, PeerTokens, load_hmac_secret
from inference_fleet.cluster import Membership, Presence, Registry, UndialableAddress, discover_address
from inference_fleet.frontend.adopted import Adopted
from inference_fleet.frontend.handshakes import Handshakes
from inference_fleet.frontend.inflight import InFlight
from inference_fleet.frontend.peer_dial import PeerDialer
from inference_fleet.frontend.tls import peer_trust, server_context
from inference_fleet.frontend.warnings import warnings_of
from inference_fleet.roster.frontend import Roster
from inference_fleet.route import (
    OwnersTogether,
    PeerLinks,
    PeerServer,
    RouteOutcome,
    SessionTable,
    SharedClock,
    WorkerDialer,
)
from inference_fleet.settings import Deadline
from inference_fleet.settings.frontend import announced
from inference_fleet.store import Database, DatabaseUnavailable, migrate
from inference_fleet.telemetry.lag import sample_loop_lag
from inference_fleet.telemetry.metrics import Metrics
from inference_fleet.tunnel import REFUSAL_LABELS, counted
from inference_fleet.upkeep import HealthMonitor, Reaper

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Mapping

    from inference_fleet.frontend.tls import PeerTrust
    from inference_fleet.settings import FrontendSettings

_log = logging.getLogger(__name__)
_DATABASE_CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8 AS now"


class Replica:
    """What a request finds behind it; made by `open_replica` alone.

    | part                          | owns                                                        |
    |-------------------------------|-------------------------------------------------------------|
    | `db`, `registry`, `roster`    | what replicas share                                         |
    | `accounts`, `keys`, `limiter` | who may ask                                                 |
    | `table`, `peers`, `dialer`    | tunnels held here, links to other replicas, the way through |
    | `membership`, `monitor`       | what happens without a request                              |
    """

    def __init__(
        self,
        settings: FrontendSettings,
        db: Database,
        *,
        secret: bytes,
        database_now: float,
        tls: ssl.SSLContext | None,
        trust: PeerTrust,
    ) -> None:
        timings = settings.timings
        self.settings = settings
        self.tls = tls
        self.db = db
        self.boot_id = uuid.uuid4().hex
        self.metrics = Metrics()
        self.clock = SharedClock(database_now)
        self.passwords = Passwords()
        self.accounts = Accounts(
            db,
            secret=secret,
            passwords=self.passwords,
            registration=settings.auth_registration,
            session_ttl_s=timings.session_ttl_s,
        )
        self.keys = ApiKeys(db, secret=secret)
        self.limiter = Limiter(window_s=timings.auth_window_s)
        self.registry = Registry(db, instance_id=settings.instance_id, boot_id=self.boot_id, timings=timings)
        self.roster = Roster(
            db, instance_id=settings.instance_id, timings=timings, auto_approve=settings.auto_approve_nodes
        )
        self.table = SessionTable(drain_wait_s=timings.drain_wait_s)
        self.tokens = PeerTokens(
            cluster_secret=settings.cluster_secret,
            instance_id=settings.instance_id,
            ttl_s=timings.peer_token_ttl_s,
        )
        self.peers = PeerLinks(
            instance_id=settings.instance_id,
            dial=PeerDialer(
                tokens=self.tokens,
                clock=self.clock,
                timings=timings,
                trust=trust,
                notices=counted(self.metrics),
            ),
            timings=timings,
        )
        self.peer_server = PeerServer(table=self.table, timings=timings, metrics=self.metrics)
        self.dialer = WorkerDialer(
            instance_id=settings.instance_id,
            table=self.table,
            owners=OwnersTogether(self.registry.owners),
            peers=self.peers,
            timings=timings,
            metrics=self.metrics,
        )
        self.membership = Membership(
            self.registry,
            held=self.table.held,
            on_lost=self.table.lost,
            on_tick=[self._read_clock, self._cut_revoked, self._count_presence],
        )
        self.monitor = HealthMonitor(db, holder=settings.instance_id, timings=timings)
        self.reaper = Reaper(db, instance_id=settings.instance_id)
        self.in_flight = InFlight()
        self.handshakes = Handshakes()
        self.adopted = Adopted()
        self.ready = False
        self._beat_at = time.monotonic()
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._presence: Mapping[str, float] = dict.fromkeys(Presence, 0.0)
        self._observe()

    async def go_away(self) -> bool:
        """Leave in order: not ready, workers and peers told, streams awaited; True when all of them finished."""
        self.ready = False
        deadline = Deadline.after(self.settings.timings.drain_wait_s)
        why = "this replica is stopping"
        await self.peers.go_away(why)
        self.peer_server.go_away(why)
        finished = await self.table.go_away(why)
        finished = await self.peers.close(deadline) and finished
        return await self.peer_server.close(deadline) and finished

    def trouble(self) -> str:
        """What keeps this replica from doing all of its work; empty when nothing does."""
        silent_s = time.monotonic() - self._beat_at
        if silent_s > self.settings.timings.instance_liveness_s:
            return f"no beat of this replica reached the database for {silent_s:.1f} s"
        return ""

    async def _read_clock(self) -> None:
        row = await self.db.row(_DATABASE_CLOCK)
        assert row is not None
        self.clock.observe(row["now"])
        self._beat_at = time.monotonic()

    async def _cut_revoked(self) -> None:
        await self.table.cut_revoked(self.roster.credential_versions)

    async def _count_presence(self) -> None:
        counts: dict[str, float] = dict.fromkeys(Presence, 0.0)
        for presence in (await self.registry.presences()).values():
            counts[presence] += 1
        self._presence = counts

    def _observe(self) -> None:
        metrics = self.metrics
        for outcome in RouteOutcome:
            metrics.dials.labels(outcome)
        for label in REFUSAL_LABELS:
            metrics.refusals.labels(label)
        metrics.observe(
            "blackstart_tunnels", "Tunnels of workers held here", lambda: len(self.table.sessions)
        )
        metrics.observe(
            "blackstart_streams_open",
            "Streams open in tunnels and peer links",
            lambda: sum(
                session.streams_open
                for session in (*self.table.sessions, *self.peers.sessions, *self.peer_server.sessions)
            ),
        )
        metrics.observe(
            "blackstart_peer_links",
            "Links to and from other replicas that are up",
            lambda: len(self.peers.sessions) + len(self.peer_server.sessions),
        )
        metrics.observe_family(
            "blackstart_presence", "Nodes by presence, as of the last tick", "state", lambda: self._presence
        )


@contextlib.asynccontextmanager
async def open_replica(settings: FrontendSettings, *, port: int) -> AsyncIterator[Replica]:
    """A replica that runs: schema ready, registered as an instance, its loops going.

    A loop that fails sets `failed`; whoever serves the replica stops then, since a replica without its beat
    must not look alive. `port` is the one it listens on.
    """
    tls, trust = server_context(settings), peer_trust(settings)
    secret = load_hmac_secret(settings.auth_hmac_secret, settings.data_dir)
    async with await _open_database(settings) as db:
        row = await db.row(_DATABASE_CLOCK)
        assert row is not None
        replica = Replica(settings, db, secret=secret, database_now=row["now"], tls=tls, trust=trust)
        await replica.registry.register(_address(settings, port))
        for warning in warnings_of(settings, peers=len(await replica.registry.live()) - 1):
            _log.warning(warning)
        loops = asyncio.create_task(_run_loops(replica), name="replica loops")
        loops.add_done_callback(lambda task: _report(replica, task))
        replica.ready = True
        try:
            async with replica.adopted.owned():
                yield replica
        finally:
            replica.ready = False
            loops.cancel()
            await asyncio.wait([loops])
            replica.passwords.close()
            await _leave(replica)


async def _open_database(settings: FrontendSettings) -> Database:
    """The database with its schema ready; one that is still coming up is waited for, up to `start_s`.

    A verdict (a wrong password, a server too old) is not waited on.
    """
    timings = settings.timings
    deadline = Deadline.after(timings.start_s)
    while True:
        try:
            await migrate(settings.database_url, timings=timings)
            return await Database.open(settings.database_url, timings=timings, name=settings.instance_id)
        except DatabaseUnavailable as error:
            if deadline.remaining_s < timings.instance_beat_s:
                raise
            _log.warning("the database is not there yet: %s", error)
        await asyncio.sleep(timings.instance_beat_s)


async def _leave(replica: Replica) -> None:
    """Give back what others would otherwise wait for: the lease, and what stands under this instance's id."""
    try:
        await replica.monitor.stand_down()
        await replica.registry.unregister()
    except DatabaseUnavailable as error:
        _log.warning("peers will find out by themselves that this replica left: %s", error)


async def _run_loops(replica: Replica) -> None:
    async with asyncio.TaskGroup() as group:
        start: Callable[..., object] = group.create_task
        start(replica.membership.run(), name="membership")
        start(replica.monitor.run(), name="health monitor")
        start(replica.peers.run(), name="peer links")
        start(_forget_sessions(replica), name="expired sessions")
        start(
            sample_loop_lag(
                every_s=replica.settings.timings.loop_lag_sample_s, report=replica.metrics.loop_lag.set
            ),
            name="loop lag",
        )


async def _forget_sessions(replica: Replica) -> None:
    while True:
        await asyncio.sleep(replica.settings.timings.session_rotate_s)
        try:
            await replica.accounts.forget_expired()
        except DatabaseUnavailable as error:
            _log.warning("expired sessions stay until the next round: %s", error)


def _report(replica: Replica, task: asyncio.Task[None]) -> None:
    if task.cancelled():
        return
    error = task.exception() or RuntimeError("the replica's loops returned")
    _log.critical("a loop of this replica failed; it stops", exc_info=error)
    if not replica.failed.done():
        replica.failed.set_result(error)


def _address(settings: FrontendSettings, port: int) -> str:
    """What peers dial: as configured, else discovered, else empty (present, not dialable; named at each notice)."""
    if settings.advertise_address is not None:
        return settings.advertise_address
    try:
        found = discover_address(settings.database_url, port)
    except UndialableAddress as error:
        _log.warning("no other replica can dial this one: %s", error)
        return ""
    return announced(found, scheme="http" if settings.tls_cert_file is None else "https")
