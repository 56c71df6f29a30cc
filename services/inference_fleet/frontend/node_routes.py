"""What workers tell their replicas over HTTP: who they are, and that they are alive."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.routing import Route

from inference_fleet.frontend import bodies, gate
from inference_fleet.frontend.answers import json_response
from inference_fleet.frontend.errors import ApiError, retry_after
from inference_fleet.roster.frontend import BootSuperseded, NameTaken, NodeUnknown
from inference_fleet.roster.wire import Heartbeat, Registration

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

_log = logging.getLogger(__name__)


async def register(request: Request) -> Response:
    """`POST /api/node/register`: 201, also when the node is there already; the id stays the name's."""
    gate.require_registration_token(request)
    replica = gate.replica_of(request)
    registration = await bodies.read_json(
        request, Registration, limit=bodies.MEDIUM, within_s=replica.settings.timings.body_read_s
    )
    try:
        registered = await replica.roster.register(registration)
    except NameTaken as error:
        _log.warning("refused a registration: %s", error)
        raise ApiError("name_taken", str(error), headers=retry_after(error.retry_after_s)) from None
    _log.info("registered node %s as %s, boot %s", registered.name, registered.id, registration.boot_id)
    return json_response(registered, 201)


async def heartbeat(request: Request) -> Response:
    """`POST /api/node/{id}/heartbeat`."""
    node_id, _ = await gate.require_node(request)
    replica = gate.replica_of(request)
    beat = await bodies.read_json(
        request, Heartbeat, limit=bodies.MEDIUM, within_s=replica.settings.timings.body_read_s
    )
    try:
        await replica.roster.heartbeat(node_id, beat)
    except NodeUnknown as error:
        raise ApiError("node_not_found", str(error)) from None
    except BootSuperseded as error:
        raise ApiError(
            "boot_superseded", str(error), headers=retry_after(replica.settings.timings.conflict_damping_s)
        ) from None
    return json_response({"id": node_id})


async def drain(request: Request) -> Response:
    """`POST /api/node/{id}/drain`: nothing new is placed on the node."""
    return await _set_draining(request, draining=True)


async def resume(request: Request) -> Response:
    """`POST /api/node/{id}/resume`."""
    return await _set_draining(request, draining=False)


async def deregister(request: Request) -> Response:
    """`POST /api/node/{id}/deregister`: the node is forgotten; its tunnel is cut at the next tick."""
    node_id, _ = await gate.require_node(request)
    try:
        await gate.replica_of(request).roster.deregister(node_id)
    except NodeUnknown as error:
        raise ApiError("node_not_found", str(error)) from None
    return json_response({"id": node_id, "deregistered": True})


async def _set_draining(request: Request, *, draining: bool) -> Response:
    node_id, _ = await gate.require_node(request)
    try:
        await gate.replica_of(request).roster.set_draining(node_id, draining=draining)
    except NodeUnknown as error:
        raise ApiError("node_not_found", str(error)) from None
    return json_response({"id": node_id, "draining": draining})


ROUTES = [
    Route("/api/node/register", register, methods=["POST"]),
    Route("/api/node/{id}/heartbeat", heartbeat, methods=["POST"]),
    Route("/api/node/{id}/drain", drain, methods=["POST"]),
    Route("/api/node/{id}/resume", resume, methods=["POST"]),
    Route("/api/node/{id}/deregister", deregister, methods=["POST"]),
]
