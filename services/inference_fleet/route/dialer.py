"""The one way to a worker: its local session, or the peer link of the replica that owns it. There is no other.

A worker's `127.0.0.1:PORT` is a *name* for one of its processes, never somewhere this side connects to.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from inference_fleet.route.outcomes import (
    AbsenceClaim,
    CallerExpired,
    NoConnection,
    NoRelayPath,
    NothingLearned,
    NotOwner,
    OwnerUnknown,
    RouteError,
    RouteOutcome,
    TunnelFailed,
    WorkerRefused,
    route_failure,
)
from inference_fleet.store import DatabaseUnavailable
from inference_fleet.tunnel import (
    Refusal,
    SessionDead,
    StreamRefused,
    StreamRequest,
    refusal_label,
    request_stream,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from inference_fleet.cluster import Owner
    from inference_fleet.route.peer_links import PeerLinks
    from inference_fleet.route.table import HeldSession, SessionTable
    from inference_fleet.settings import Deadline, Timings
    from inference_fleet.telemetry.metrics import Metrics
    from inference_fleet.tunnel import Stream

Route = Literal["local", "relayed"]


class Owners(Protocol):
    """Where it is asked who holds a node's tunnel (`OwnersTogether`, `cluster.Registry`)."""

    async def owner(self, node_id: str) -> Owner | None:
        """The live replica recorded as owner, or None."""


@dataclass(frozen=True, kw_only=True)
class StreamParts:
    """What is wanted of a worker, before anybody knows where its tunnel is held."""

    tag: Literal["http", "backend"]
    target: str = ""
    process_key: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True)
class Opened:
    """A stream past every handshake, and which way it goes."""

    stream: Stream
    route: Route
    epoch: int


class WorkerDialer:
    """Opens streams to workers, wherever their tunnels are held.

    | raised          | when                                                                              |
    |-----------------|-----------------------------------------------------------------------------------|
    | `CallerExpired` | the caller's deadline has passed, whatever else went wrong; looked at first       |
    | `WorkerRefused` | the worker itself answered; `.evidence` says whether about the process            |
    | `NoRoute`       | everything else, by kind; never carries an absence claim                          |
    """

    def __init__(
        self,
        *,
        instance_id: str,
        table: SessionTable,
        owners: Owners,
        peers: PeerLinks,
        timings: Timings,
        metrics: Metrics,
    ) -> None:
        self._instance_id = instance_id
        self._table = table
        self._owners = owners
        self._peers = peers
        self._open_s = timings.stream_open_s
        self._metrics = metrics

    async def open(self, node_id: str, parts: StreamParts, *, deadline: Deadline) -> Opened:
        """A stream to one process of a worker. Nothing has been sent to that process yet.

        Whoever was named as owner and is not is asked about once more; a second time it is `NotOwner`.
        """
        failure: RouteError | WorkerRefused | None = None
        for asked in (False, True):
            if deadline.expired:
                failure = CallerExpired(node_id, f"the caller's time ran out before node {node_id} was asked")
                break
            try:
                opened = await self._once(node_id, parts, deadline, ask_owner=asked)
            except (OSError, StreamRefused, RouteError, AbsenceClaim, DatabaseUnavailable) as error:
                failure = classify(node_id, error, deadline)
            else:
                self._metrics.dials.labels(RouteOutcome.OPENED).inc()
                return opened
            if not _worth_asking_again(failure):
                break
        assert failure is not None
        self._metrics.dials.labels(failure.outcome).inc()
        raise failure

    async def _once(self, node_id: str, parts: StreamParts, deadline: Deadline, *, ask_owner: bool) -> Opened:
        local = self._table.get(node_id)
        if local is not None and not ask_owner:
            return await self._local(node_id, local, parts, deadline)
        owner = await self._resolve(node_id, deadline)
        if owner.instance_id != self._instance_id:
            request = _request(node_id, parts, owner.epoch, deadline)
            asking = self._peers.open(owner, request, deadline=deadline)
            stream = await self._answered(node_id, owner.epoch, asking)
            return Opened(stream, "relayed", owner.epoch)
        local = self._table.get(node_id)
        if local is None or local.epoch != owner.epoch:
            held = "none" if local is None else f"epoch {local.epoch}"
            raise NotOwner(
                node_id, f"this replica is recorded as owner at epoch {owner.epoch} and holds {held}"
            )
        return await self._local(node_id, local, parts, deadline)

    async def _local(self, node_id: str, held: HeldSession, parts: StreamParts, deadline: Deadline) -> Opened:
        request = _request(node_id, parts, held.epoch, deadline)
        opening = deadline.shorten(self._open_s)
        asking = request_stream(held.session, request, deadline=opening)
        return Opened(await self._answered(node_id, held.epoch, asking), "local", held.epoch)

    async def _answered(self, node_id: str, epoch: int, asking: Coroutine[None, None, Stream]) -> Stream:
        """The stream asked for; a refusal is counted, and kept together with the ownership it was heard over."""
        try:
            return await asking
        except StreamRefused as error:
            self._metrics.refusals.labels(refusal_label(error.code)).inc()
            refused = WorkerRefused(node_id, epoch, error.code, error.message)
        raise refused

    async def _resolve(self, node_id: str, deadline: Deadline) -> Owner:
        late = False
        try:
            async with asyncio.timeout(deadline.shorten(self._open_s).remaining_s):
                owner = await self._owners.owner(node_id)
        except TimeoutError:
            late = True
        if late:
            raise OwnerUnknown(node_id, "the database did not say in time who holds its tunnel")
        if owner is None:
            raise NoConnection("no live replica holds its tunnel")
        if owner.instance_id != self._instance_id and not owner.address:
            raise NoRelayPath(
                node_id,
                f"replica {owner.instance_id} holds its tunnel and advertises no address; "
                "try: set BLACKSTART_ADVERTISE_ADDRESS there",
            )
        return owner


def classify(node_id: str, error: BaseException, deadline: Deadline) -> RouteError | WorkerRefused:
    """What a failed attempt means to the caller; their own deadline is looked at before anything else.

    Nothing orders a socket's timer and the caller's clock, so at the ambiguous instant the caller's time is
    what ran out, and no worker, tunnel or peer is blamed.
    """
    if deadline.expired:
        return CallerExpired(node_id, f"the caller's time ran out while a stream to node {node_id} opened")
    if isinstance(error, WorkerRefused):
        return _refused(node_id, error)
    if isinstance(error, RouteError):
        return error
    if isinstance(error, DatabaseUnavailable):
        return route_failure(node_id, error, OwnerUnknown)
    if isinstance(error, AbsenceClaim):
        return route_failure(node_id, error)
    return route_failure(node_id, error, TunnelFailed)


def _worth_asking_again(failure: RouteError | WorkerRefused) -> bool:
    """The owner was another one, or the tunnel died under the question: the database may name a newer owner."""
    dead = isinstance(failure, TunnelFailed) and isinstance(failure.__cause__, SessionDead)
    return dead or isinstance(failure, NotOwner)


def _refused(node_id: str, error: WorkerRefused) -> RouteError | WorkerRefused:
    if error.refusal in {Refusal.STALE_EPOCH, Refusal.NOT_OWNER}:
        return NotOwner(node_id, f"{error.code}: {error.message}")
    if error.refusal is None:
        return route_failure(node_id, error, NothingLearned)
    return error


def _request(node_id: str, parts: StreamParts, epoch: int, deadline: Deadline) -> StreamRequest:
    return StreamRequest(
        tag=parts.tag,
        target=parts.target,
        process_key=parts.process_key,
        node=node_id,
        epoch=epoch,
        budget_ms=deadline.budget_ms,
        traceparent=parts.traceparent,
    )
