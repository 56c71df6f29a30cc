"""The links this replica dials to its peers: one pooled session a peer, one dial at a time, closed when idle."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from inference_fleet.route.outcomes import CallerExpired, NoRelayPath, PeerUnreachable
from inference_fleet.route.relay_frame import FRAME_LIMIT, RelayRequest
from inference_fleet.settings import Deadline
from inference_fleet.tunnel import (
    DeadlineExpired,
    DialRefused,
    SessionDead,
    StreamRefused,
    part,
    read_reply,
    write_frame,
)

if TYPE_CHECKING:
    from inference_fleet.cluster import Owner
    from inference_fleet.settings import Timings
    from inference_fleet.tunnel import Session, Stream, StreamRequest

_log = logging.getLogger(__name__)


class PeerDial(Protocol):
    """How a link is made: a session over a WebSocket to the peer's `/api/cluster/peer`, not yet running."""

    async def __call__(self, owner: Owner, *, deadline: Deadline) -> Session:
        """The session, past its upgrade; `ConnectionError` or `TimeoutError` when there is none."""


class _Link:
    """One peer at one address; `ready` is the session once the dial is through, or why it is not."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.ready: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        self.used_at = asyncio.get_running_loop().time()

    @property
    def is_up(self) -> bool:
        """Dialled, and not known to be dead."""
        return self.ready.done() and self.usable

    @property
    def usable(self) -> bool:
        """Still dialling, or up and taking streams."""
        if not self.ready.done():
            return True
        return self.ready.exception() is None and self.ready.result().connected


class PeerLinks:
    """Relays streams to the replicas that own workers.

    `run` owns every dial and every session; whoever asks for a stream only waits for them, within the caller's
    own deadline, so one caller that leaves takes no dial from the others.
    """

    def __init__(self, *, instance_id: str, dial: PeerDial, timings: Timings) -> None:
        self._instance_id = instance_id
        self._dial = dial
        self._timings = timings
        self._links: dict[str, _Link] = {}
        self._group: asyncio.TaskGroup | None = None
        self._closing = False

    async def run(self) -> None:
        """Keep the links until cancelled; cancelling aborts them."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._group = None

    async def open(self, owner: Owner, request: StreamRequest, *, deadline: Deadline) -> Stream:
        """A stream to the worker through its owner: one relay frame there, one reply back.

        A link that was up and turns out to be dead is dialled anew. The worker's and the owner's refusals come
        back as `StreamRefused`; a peer that does not answer is `PeerUnreachable`, unless the caller's own time
        ran out, which is looked at first. A peer that answers 401 is named so: no network is to blame for that.
        """
        relay = RelayRequest(self._instance_id, request)
        opening = deadline.shorten(self._timings.stream_open_s)
        said = "does not answer: no time was left to ask it"
        while not deadline.expired:
            link = self._links.get(owner.instance_id)
            kept = link is not None and link.is_up
            try:
                return await _ask(await self._session(owner, opening), relay, opening)
            except SessionDead as error:
                said = f"does not answer: {error}"
            except OSError as error:
                said, kept = _said(error), False
            if not kept:
                break
        if deadline.expired:
            raise CallerExpired(
                request.node, f"the caller's time ran out while replica {owner.instance_id} was asked"
            )
        raise PeerUnreachable(request.node, f"replica {owner.instance_id} at {owner.address} {said}")

    async def go_away(self, reason: str) -> None:
        """Tell every peer that nothing new comes, and dial nobody any more."""
        self._closing = True
        for session in self.sessions:
            session.go_away(reason)

    async def close(self, deadline: Deadline) -> bool:
        """Wait for relayed streams, then close the links; True when all finished in time."""
        return await part(self.sessions, deadline)

    @property
    def sessions(self) -> list[Session]:
        """Every link that is up."""
        return [
            link.ready.result()
            for link in self._links.values()
            if link.ready.done() and not link.ready.cancelled() and link.ready.exception() is None
        ]

    async def _session(self, owner: Owner, deadline: Deadline) -> Session:
        link = self._links.get(owner.instance_id)
        if link is None or not link.usable or link.owner.address != owner.address:
            link = self._start(owner)
        link.used_at = asyncio.get_running_loop().time()
        async with asyncio.timeout(deadline.remaining_s):
            return await asyncio.shield(link.ready)

    def _start(self, owner: Owner) -> _Link:
        if self._group is None or self._closing:
            raise ConnectionError("this replica is shutting down and dials no peer")
        link = self._links[owner.instance_id] = _Link(owner)
        # A link outlives the request that happened to need it first, and must not log under that one's ids.
        task = contextvars.Context().run(self._group.create_task, self._keep(link))
        task.set_name(f"peer link to {owner.instance_id}")
        return link

    async def _keep(self, link: _Link) -> None:
        owner = link.owner
        try:
            session = await self._dial(owner, deadline=Deadline.after(self._timings.handshake_s))
        except (OSError, NoRelayPath) as error:
            _log.warning("peer %s at %s cannot be dialled: %s", owner.instance_id, owner.address, error)
            self._failed(link, error)
            return
        except Exception as error:  # noqa: BLE001 -- logged; one broken dial must not end the links to other peers
            _log.exception("the dial of peer %s at %s failed unexpectedly", owner.instance_id, owner.address)
            self._failed(link, ConnectionError(f"the dial failed unexpectedly: {error!r}"))
            return
        except asyncio.CancelledError:
            self._failed(link, ConnectionError("this replica is shutting down"))
            raise
        link.ready.set_result(session)
        try:
            async with asyncio.TaskGroup() as group:
                idle = group.create_task(self._close_when_idle(link, session))
                try:
                    ending = await session.run()
                finally:
                    idle.cancel()
            _log.info("peer link to %s ended: %s", owner.instance_id, ending.cause)
        finally:
            self._forget(link)

    async def _close_when_idle(self, link: _Link, session: Session) -> None:
        loop = asyncio.get_running_loop()
        idle_s = self._timings.peer_idle_s
        while True:
            if session.streams_open:
                link.used_at = loop.time()
            wait_s = link.used_at + idle_s - loop.time()
            if wait_s <= 0:
                break
            await asyncio.sleep(wait_s)
        await session.close()

    def _failed(self, link: _Link, error: Exception) -> None:
        self._forget(link)
        link.ready.set_exception(error)
        link.ready.exception()  # whoever waits has it; nobody waiting is no bug

    def _forget(self, link: _Link) -> None:
        if self._links.get(link.owner.instance_id) is link:
            del self._links[link.owner.instance_id]


def _said(error: OSError) -> str:
    if isinstance(error, DialRefused) and error.status == HTTPStatus.UNAUTHORIZED:
        return "refuses this replica's token with HTTP 401; try: the same BLACKSTART_CLUSTER_SECRET on every replica"
    return f"does not answer: {str(error) or type(error).__name__}"


async def _ask(session: Session, relay: RelayRequest, deadline: Deadline) -> Stream:
    if deadline.expired:
        raise DeadlineExpired("no time left to ask the owner")
    stream = session.open_stream()
    try:
        write_frame(stream, relay.encode(), limit=FRAME_LIMIT)
        await read_reply(stream, deadline=deadline)
    except StreamRefused:
        stream.close()
        raise
    except BaseException:
        stream.abort()
        raise
    return stream
