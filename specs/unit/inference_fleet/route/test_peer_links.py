"""Links between replicas over real WebSockets: the spec plays the owner and decides when it answers."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from specs.unit.inference_fleet.tunnel.linked import serve
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import WebSocketRoute

from inference_fleet.auth import PeerTokens
from inference_fleet.frontend.peer_dial import PATH, SUBPROTOCOL, PeerDialer
from inference_fleet.route import (
    CallerExpired,
    NoRelayPath,
    PeerLinks,
    PeerUnreachable,
    RelayRequest,
    RouteError,
    SharedClock,
)
from inference_fleet.route.peer_links import _ask
from inference_fleet.settings import Deadline
from inference_fleet.tunnel import DeadlineExpired, Session, StreamRequest, accept_stream, read_frame
from inference_fleet.tunnel.frontend import AsgiCarrier

from .piped import TIMINGS, until
from .routed import exchanged, owned_by

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.websockets import WebSocket

    from inference_fleet.cluster import Owner
    from inference_fleet.settings import Timings
    from inference_fleet.tunnel import Stream

SECRET = "cluster-secret"
REQUEST = StreamRequest(tag="backend", target="127.0.0.1:20051", process_key="m#1", node="n", epoch=7)


def soon() -> Deadline:
    return Deadline.after(TIMINGS.request_s)


@dataclass
class PlayedOwner:
    """A replica `owner` whose answers the spec makes; it authenticates nobody, which is another spec's business."""

    address: str
    frames: list[RelayRequest] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)

    @property
    def row(self) -> Owner:
        return owned_by("owner", epoch=7, address=self.address)


@contextlib.asynccontextmanager
async def played_owner(
    respond: Callable[[Stream, RelayRequest], Awaitable[None]],
    *,
    gate: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[PlayedOwner]:
    """Serve the peer path on a real port; `gate` stands before each upgrade."""
    owner = PlayedOwner("")

    async def on_stream(stream: Stream) -> None:
        payload = await read_frame(stream, limit=8192, deadline=soon())
        owner.frames.append(RelayRequest.decode(payload, peer="asker"))
        await respond(stream, owner.frames[-1])

    async def route(websocket: WebSocket) -> None:
        if gate is not None:
            await gate()
        await websocket.accept(SUBPROTOCOL)
        session = Session(
            AsgiCarrier(websocket), client=False, timings=TIMINGS, on_stream=on_stream, name="owner"
        )
        owner.sessions.append(session)
        await session.run()

    async with serve(Starlette(routes=[WebSocketRoute(PATH, route)])) as url:
        owner.address = url.removeprefix("http://")
        yield owner


@contextlib.asynccontextmanager
async def links(*, secret: str = SECRET, timings: Timings = TIMINGS) -> AsyncIterator[PeerLinks]:
    """The links of a replica `asker`, dialled for real."""
    tokens = PeerTokens(cluster_secret=secret, instance_id="asker", ttl_s=timings.peer_token_ttl_s)
    dial = PeerDialer(tokens=tokens, clock=SharedClock(1000.0), timings=timings)
    made = PeerLinks(instance_id="asker", dial=dial, timings=timings)
    running = asyncio.create_task(made.run())
    await asyncio.sleep(0)
    try:
        yield made
    finally:
        await made.close(Deadline.after(0))
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def pass_on(stream: Stream, _relay: RelayRequest) -> None:
    """Accept and echo one message."""
    accept_stream(stream)
    with contextlib.suppress(asyncio.IncompleteReadError):
        stream.write(await stream.read_exactly(4, deadline=soon()))
    stream.close()


async def keep_silent(stream: Stream, _relay: RelayRequest) -> None:
    """Read the frame, answer nothing."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await stream.read_exactly(1, deadline=soon())


@pytest.mark.holds("B-49", "B-43")
def test_one_frame_goes_to_the_owner_one_reply_comes_back_and_the_link_is_kept() -> None:
    async def story() -> None:
        async with played_owner(pass_on) as owner, links() as peers:
            for _ in range(3):
                stream = await peers.open(owner.row, REQUEST, deadline=soon())
                assert await exchanged(stream) == b"ping"
                stream.abort()
            assert len(owner.sessions) == 1, "streams share one link"
            assert owner.frames == [RelayRequest("asker", REQUEST)] * 3

    asyncio.run(story())


@pytest.mark.holds("B-65")
def test_a_passed_deadline_against_an_address_nobody_listens_on_is_the_callers_own() -> None:
    async def story() -> None:
        async with links() as peers:
            nowhere = owned_by("owner", address="127.0.0.1:1")
            with pytest.raises(RouteError) as caught:
                await peers.open(nowhere, REQUEST, deadline=Deadline(at=0.0))
            assert isinstance(caught.value, CallerExpired), (
                "the peer was blamed for the caller's own deadline"
            )
            with pytest.raises(PeerUnreachable, match=r"owner at 127\.0\.0\.1:1 does not answer"):
                await peers.open(nowhere, REQUEST, deadline=soon())

    asyncio.run(story())


@pytest.mark.holds("B-66", "B-62", "B-64", "B-252")
def test_a_deadline_between_request_and_reply_is_the_callers_own_and_crossed_in_the_frame() -> None:
    async def story() -> None:
        async with played_owner(keep_silent) as owner, links() as peers:
            warm = asyncio.create_task(peers.open(owner.row, REQUEST, deadline=soon()))
            await until(
                lambda: owner.frames
            )  # the link is up, so that the deadline can only fall on the reply
            warm.cancel()

            deadline = Deadline.after(TIMINGS.reconnect_backoff_min_s)
            request = StreamRequest(tag="http", node="n", epoch=7, budget_ms=deadline.budget_ms)
            with pytest.raises(RouteError) as caught:
                await peers.open(owner.row, request, deadline=deadline)
            assert isinstance(caught.value, CallerExpired), (
                "the peer was blamed for the caller's own deadline"
            )

            arrived = owner.frames[-1].request.budget_ms
            assert arrived is not None
            assert 0 < arrived <= TIMINGS.reconnect_backoff_min_s * 1000, "the owner was told what was left"

    asyncio.run(story())


def test_a_peer_that_refuses_the_token_is_told_from_one_that_does_not_answer() -> None:
    async def refused_with(status: int) -> str:
        async def refuse(websocket: WebSocket) -> None:
            await websocket.send_denial_response(Response("not one of us", status))

        async with serve(Starlette(routes=[WebSocketRoute(PATH, refuse)])) as url, links() as peers:
            owner = owned_by("owner", address=url.removeprefix("http://"))
            with pytest.raises(PeerUnreachable) as caught:
                await peers.open(owner, REQUEST, deadline=soon())
            return str(caught.value)

    refused, other = (asyncio.run(refused_with(status)) for status in (401, 503))
    assert "refuses this replica's token with HTTP 401" in refused, "a secret that differs is not named"
    assert "BLACKSTART_CLUSTER_SECRET" in refused
    assert "does not answer" not in refused
    assert "does not answer" in other
    assert "BLACKSTART_CLUSTER_SECRET" not in other


def test_a_deadline_that_passed_during_the_dial_opens_nothing_on_the_link() -> None:
    async def story() -> None:
        async with played_owner(pass_on) as owner, links() as peers:
            warm = await peers.open(owner.row, REQUEST, deadline=soon())
            (session,) = peers.sessions
            with pytest.raises(DeadlineExpired):
                await _ask(session, RelayRequest("asker", REQUEST), Deadline(at=0.0))
            following = await peers.open(owner.row, REQUEST, deadline=soon())
            assert following.id == warm.id + 2, "a stream was opened for a caller whose time had passed"
            assert len(owner.frames) == 2
            for stream in (warm, following):
                stream.abort()

    asyncio.run(story())


@pytest.mark.holds("B-66")
def test_an_owner_that_keeps_silent_past_the_opening_limit_is_unreachable() -> None:
    quick = replace(TIMINGS, stream_open_s=TIMINGS.instance_beat_s)

    async def story() -> None:
        async with played_owner(keep_silent) as owner, links(timings=quick) as peers:
            with pytest.raises(PeerUnreachable):
                await peers.open(owner.row, REQUEST, deadline=soon())
            assert len(owner.frames) == 1

    asyncio.run(story())


def test_callers_that_come_together_share_one_dial_and_one_that_leaves_takes_it_from_nobody() -> None:
    async def story() -> None:
        opened = asyncio.Event()
        waiting: list[int] = []

        async def hold_back() -> None:
            waiting.append(1)
            await opened.wait()

        async with played_owner(pass_on, gate=hold_back) as owner, links() as peers:
            asking = [asyncio.create_task(peers.open(owner.row, REQUEST, deadline=soon())) for _ in range(4)]
            await until(lambda: waiting)
            asking[0].cancel()
            opened.set()
            streams = await asyncio.gather(*asking[1:])
            assert len(waiting) == len(owner.sessions) == 1
            for stream in streams:
                stream.abort()

    asyncio.run(story())


def test_a_dead_link_is_dialled_anew_for_the_request_that_finds_it_dead() -> None:
    async def story() -> None:
        async with played_owner(pass_on) as owner, links() as peers:
            (await peers.open(owner.row, REQUEST, deadline=soon())).abort()
            for _ in range(2):
                await owner.sessions[-1].close()
                stream = await peers.open(owner.row, REQUEST, deadline=soon())
                assert await exchanged(stream) == b"ping"
                stream.abort()
            assert len(owner.sessions) == 3

    asyncio.run(story())


def test_a_peer_that_moved_is_dialled_at_its_new_address() -> None:
    async def story() -> None:
        async with played_owner(pass_on) as before, played_owner(pass_on) as after, links() as peers:
            for owner in (before, after):
                (await peers.open(owner.row, REQUEST, deadline=soon())).abort()
            assert (len(before.sessions), len(after.sessions)) == (1, 1)

    asyncio.run(story())


def test_an_idle_link_is_closed_and_one_with_a_stream_is_not() -> None:
    quick = replace(TIMINGS, peer_idle_s=4 * TIMINGS.reconnect_backoff_min_s)

    async def story() -> None:
        async with played_owner(pass_on) as owner, links(timings=quick) as peers:
            stream = await peers.open(owner.row, REQUEST, deadline=soon())
            await asyncio.sleep(
                4 * quick.peer_idle_s
            )  # the control: four idle times pass under an open stream
            assert owner.sessions[0].connected
            stream.abort()
            await until(lambda: not owner.sessions[0].connected)
            await until(lambda: not peers.sessions)

    asyncio.run(story())


@pytest.mark.holds("B-68")
def test_without_a_cluster_secret_no_peer_is_dialled() -> None:
    async def story() -> None:
        async with played_owner(pass_on) as owner, links(secret="") as peers:
            with pytest.raises(NoRelayPath, match="BLACKSTART_CLUSTER_SECRET"):
                await peers.open(owner.row, REQUEST, deadline=soon())
            assert not owner.sessions

    asyncio.run(story())


def test_a_replica_that_is_leaving_dials_nobody() -> None:
    async def story() -> None:
        async with played_owner(pass_on) as owner, links() as peers:
            await peers.go_away("stopping")
            with pytest.raises(PeerUnreachable, match="shutting down"):
                await peers.open(owner.row, REQUEST, deadline=soon())

    asyncio.run(story())
