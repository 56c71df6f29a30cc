"""A worker's tunnel: authenticated, then claimed, then upgraded; released when it ends.

| refused before the upgrade with      | when                                                             |
|--------------------------------------|------------------------------------------------------------------|
| 401 `unauthorized`                   | the credential is not this node's (an empty one is nobody's)     |
| 400 `invalid`                        | boot, seen epoch or subprotocol is missing or nonsense           |
| 409 `boot_conflict`, `Retry-After`   | another boot took the node a moment ago, and is damped           |
| 409 `epoch_leap`, `Retry-After`      | the worker has seen an epoch this database cannot have given out |
| 503 `draining`                       | this replica is going away                                       |
| 503 `too_many_handshakes`            | too many dials are before authentication already                 |
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import TYPE_CHECKING

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocketDisconnect

from inference_fleet.cluster import BootConflict, EpochLeap
from inference_fleet.frontend import gate
from inference_fleet.frontend.errors import ApiError, retry_after
from inference_fleet.frontend.handshakes import admit, deny, handshake
from inference_fleet.roster.frontend import NodeUnknown
from inference_fleet.route import HeldSession
from inference_fleet.store import DatabaseUnavailable
from inference_fleet.telemetry.logs import bound
from inference_fleet.tunnel import Session, counted
from inference_fleet.tunnel.frontend import AsgiCarrier, carrier_of

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

    from inference_fleet.cluster import Claim
    from inference_fleet.frontend.replica import Replica

SUBPROTOCOL = "blackstart.tunnel.v1"
_BOOT = re.compile(r"[A-Za-z0-9-]{8,64}")
_LAST_EPOCH = 2**63 - 1  # the last that a sequence gives out
_log = logging.getLogger(__name__)


async def tunnel(websocket: WebSocket) -> None:
    """`GET /api/node/{id}/tunnel`."""
    replica = gate.replica_of(websocket)
    refused: ApiError
    try:
        async with handshake(replica):
            node_id, version = await gate.require_node(websocket)
            admit(websocket, replica, SUBPROTOCOL)
            boot_id, seen_epoch = _introduction(websocket)
            claim = await _claim(replica, node_id, seen_epoch=seen_epoch, boot_id=boot_id)
    except ApiError as error:
        refused = error
    else:
        with bound(node=node_id, epoch=claim.epoch):
            await _serve(websocket, replica, claim, boot_id=boot_id, version=version)
        return
    await deny(websocket, refused)


async def _claim(replica: Replica, node_id: str, *, seen_epoch: int, boot_id: str) -> Claim:
    try:
        return await replica.registry.claim(node_id, seen_epoch=seen_epoch, boot_id=boot_id)
    except BootConflict as error:
        replica.metrics.conflicts.inc()
        _log.warning("refused a tunnel: %s", error)
        raise ApiError("boot_conflict", str(error), headers=retry_after(error.retry_after_s)) from None
    except EpochLeap as error:
        _log.error("refused a tunnel: %s", error)
        wait_s = replica.settings.timings.conflict_damping_s
        raise ApiError("epoch_leap", str(error), headers=retry_after(wait_s)) from None


async def _serve(websocket: WebSocket, replica: Replica, claim: Claim, *, boot_id: str, version: int) -> None:
    node_id, epoch = claim.node_id, claim.epoch
    if claim.conflict and claim.superseded is not None:
        replica.metrics.conflicts.inc()
        _log.warning(
            "node %s changed hands: boot %s took it from boot %s at %s",
            node_id,
            boot_id,
            claim.superseded.boot_id,
            claim.superseded.owner,
        )
    timings = replica.settings.timings
    try:
        await websocket.accept(SUBPROTOCOL, headers=[(b"x-blackstart-epoch", str(epoch).encode())])
        carrier = carrier_of(websocket, stall_s=timings.write_stall_s)
    except BaseException as error:
        await _release(replica, node_id, epoch)
        if not isinstance(error, WebSocketDisconnect):
            raise
        _log.info("the worker left before its tunnel was up")
        return
    held = HeldSession(
        session=Session(
            carrier,
            client=False,
            timings=timings,
            name=f"node {node_id}",
            notices=counted(replica.metrics),
        ),
        epoch=epoch,
        boot_id=boot_id,
        credential_version=version,
        claimed_at=time.monotonic(),
    )
    holding = _hold(replica, node_id, held, path=carrier.path)
    if isinstance(carrier, AsgiCarrier):
        await holding
    else:  # nothing of the request is needed any more: its task and all its objects end here
        replica.adopted.start(holding, name=f"tunnel of node {node_id} epoch {epoch}")


async def _hold(replica: Replica, node_id: str, held: HeldSession, *, path: str) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            arrived = group.create_task(_arrived(replica, node_id))
            with replica.metrics.tunnel_carrier.labels(path).track_inprogress():
                ending = await replica.table.hold(node_id, held)
            arrived.cancel()
        _log.info("tunnel ended: %s", ending.cause)
    finally:
        await _release(replica, node_id, held.epoch)


async def _arrived(replica: Replica, node_id: str) -> None:
    """A returned tunnel makes its node healthy now, not at the monitor's next tick."""
    try:
        await replica.roster.tunnel_arrived(node_id)
    except (DatabaseUnavailable, NodeUnknown) as error:
        _log.warning("the status waits for the next health tick: %s", error)
    except Exception:  # noqa: BLE001 - whatever it is, a tunnel that stands is not ended by it
        _log.exception("the status waits for the next health tick")


async def _release(replica: Replica, node_id: str, epoch: int) -> None:
    """Record the departure; what an outage keeps from being written here, the next beats settle."""
    releasing = asyncio.ensure_future(replica.registry.release(node_id, epoch))
    try:
        await asyncio.shield(releasing)
    except asyncio.CancelledError:
        await asyncio.wait([releasing])  # what is under way ends before this replica does
        raise
    except DatabaseUnavailable as error:
        _log.warning("the departure could not be recorded yet: %s", error)


def _introduction(websocket: WebSocket) -> tuple[str, int]:
    boot_id = websocket.headers.get("x-blackstart-boot", "")
    if not _BOOT.fullmatch(boot_id):
        raise ApiError("invalid", "X-Blackstart-Boot must be 8 to 64 letters, digits or dashes")
    seen = websocket.headers.get("x-blackstart-seen-epoch", "0")
    readable = seen.isascii() and seen.isdigit() and len(seen) <= len(str(_LAST_EPOCH))
    if not readable or int(seen) > _LAST_EPOCH:
        raise ApiError(
            "invalid",
            f"X-Blackstart-Seen-Epoch must be a whole number up to {_LAST_EPOCH}, 0 for a worker that has seen none",
        )
    return boot_id, int(seen)


ROUTES = [WebSocketRoute("/api/node/{id}/tunnel", tunnel)]
