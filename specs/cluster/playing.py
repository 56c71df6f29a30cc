"""A spec that plays a replica: a peer link of its own to a real one, under the fleet's secret."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from specs.unit.inference_fleet.tunnel.awaited import Awaited

from inference_fleet.auth import PeerTokens
from inference_fleet.cluster import Owner
from inference_fleet.frontend.peer_dial import PATH, SUBPROTOCOL, PeerDialer
from inference_fleet.route import PeerLinks, SharedClock
from inference_fleet.settings import Deadline
from inference_fleet.tunnel import StreamRequest, dial_websocket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from blackstart.fleet import Fleet
    from inference_fleet.tunnel import Session

NAME = "frontend-played-by-a-spec"


def _tokens(fleet: Fleet, secret: str | None = None) -> PeerTokens:
    return PeerTokens(
        cluster_secret=fleet.secrets.cluster if secret is None else secret,
        instance_id=NAME,
        ttl_s=fleet.timings.peer_token_ttl_s,
    )


def _dialer(fleet: Fleet, secret: str | None) -> PeerDialer:
    return PeerDialer(tokens=_tokens(fleet, secret), clock=SharedClock(time.time()), timings=fleet.timings)


def _replica_0(fleet: Fleet, epoch: int) -> Owner:
    return Owner(instance_id="frontend-0", address=fleet.frontend(0).place.address, epoch=epoch)


@asynccontextmanager
async def peer_session(fleet: Fleet) -> AsyncIterator[Session]:
    """A running session to replica 0, as another replica has it."""
    deadline = Deadline.after(fleet.timings.handshake_s)
    session = await _dialer(fleet, None)(_replica_0(fleet, 1), deadline=deadline)
    running = asyncio.create_task(session.run())
    try:
        yield session
    finally:
        await session.close()
        with suppress(asyncio.CancelledError):
            await running


async def peer_carrier(fleet: Fleet) -> Awaited:
    """The bare WebSocket of a peer link to replica 0, on which a spec may say anything."""
    token = _tokens(fleet).issue("frontend-0", now=time.time())
    carrier, _ = await dial_websocket(
        f"ws://{fleet.frontend(0).place.address}{PATH}",
        subprotocol=SUBPROTOCOL,
        headers={"Authorization": f"Bearer {token}"},
        timings=fleet.timings,
    )
    return Awaited(carrier)


async def relay(fleet: Fleet, *, node: str, epoch: int, secret: str | None = None) -> Exception | None:
    """Ask replica 0 for a stream to `node`: None when it was given, else why not."""
    timings = fleet.timings
    links = PeerLinks(instance_id=NAME, dial=_dialer(fleet, secret), timings=timings)
    running = asyncio.create_task(links.run())
    try:
        await asyncio.sleep(0)  # `run` makes its task group before anything may be opened
        request = StreamRequest(tag="http", target="", node=node, epoch=epoch)
        stream = await links.open(
            _replica_0(fleet, epoch), request, deadline=Deadline.after(timings.stream_open_s)
        )
    except Exception as error:  # noqa: BLE001 - what it is, is what the spec asks
        return error
    else:
        stream.abort()
        return None
    finally:
        await links.close(Deadline.after(timings.drain_wait_s))
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
