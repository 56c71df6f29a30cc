"""What a connection may cost before it is authenticated: few at once, and not for long."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from starlette.websockets import WebSocketDisconnect

from inference_fleet.frontend.errors import ApiError, database_out, error_response, retry_after
from inference_fleet.store import DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.websockets import WebSocket

    from inference_fleet.frontend.replica import Replica

AT_ONCE = 256
_log = logging.getLogger(__name__)


class Handshakes:
    """How many dials stand before their authentication."""

    def __init__(self, *, at_once: int = AT_ONCE) -> None:
        self.at_once = at_once
        self.now = 0


@contextlib.asynccontextmanager
async def handshake(replica: Replica) -> AsyncIterator[None]:
    """One dial's way to its upgrade: refused when too many are on it, ended when it takes too long."""
    waiting = replica.handshakes
    limit_s = replica.settings.timings.handshake_s
    if waiting.now >= waiting.at_once:
        raise ApiError(
            "too_many_handshakes",
            f"{waiting.now} dials are being authenticated already",
            headers=retry_after(limit_s),
        )
    waiting.now += 1
    try:
        async with asyncio.timeout(limit_s):
            yield
    except DatabaseUnavailable as error:
        raise database_out(error) from None
    except TimeoutError:
        raise ApiError(
            "unavailable", f"the handshake took longer than {limit_s:g} s", headers=retry_after(1)
        ) from None
    finally:
        waiting.now -= 1


def admit(websocket: WebSocket, replica: Replica, subprotocol: str) -> None:
    """What is asked of every authenticated dial."""
    if replica.table.closing:
        raise ApiError("draining", "this replica is going away; dial another")  # at once: no Retry-After
    if subprotocol not in websocket.scope.get("subprotocols", []):
        raise ApiError("invalid", f"the subprotocol {subprotocol} must be offered")


async def deny(websocket: WebSocket, error: ApiError) -> None:
    """Answer a dial with plain HTTP instead of an upgrade."""
    try:
        await websocket.send_denial_response(error_response(error))
    except WebSocketDisconnect:
        _log.info("a dial left before it heard: %s", error)
