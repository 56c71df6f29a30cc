"""What operators read: nodes and why they are what they are, replicas, and everything that was ever reaped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.routing import Route

from inference_fleet.frontend import gate
from inference_fleet.frontend.answers import json_response
from inference_fleet.frontend.errors import ApiError
from inference_fleet.roster.frontend import NodeUnknown
from inference_fleet.store import MOST_REAPS, list_reaps

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from inference_fleet.frontend.replica import Replica
    from inference_fleet.roster.frontend import NodeView


async def list_nodes(request: Request) -> Response:
    """`GET /api/nodes`."""
    await gate.require_fleet_reader(request)
    replica = gate.replica_of(request)
    return json_response([_counted(replica, view) for view in await replica.roster.nodes()])


async def get_node(request: Request) -> Response:
    """`GET /api/nodes/{id}`."""
    await gate.require_fleet_reader(request)
    node_id = gate.path_id(request)
    replica = gate.replica_of(request)
    view = await replica.roster.node(node_id)
    if view is None:
        raise _unknown(node_id)
    return json_response(_counted(replica, view))


async def explain_node(request: Request) -> Response:
    """`GET /api/nodes/{id}/explain`: its view, the facts behind it, and what was done to it; also when it is gone."""
    await gate.require_fleet_reader(request)
    node_id = gate.path_id(request)
    explanation = await gate.replica_of(request).roster.explain(node_id)
    if explanation.node is None and not explanation.reaps:
        raise _unknown(node_id)
    return json_response(explanation)


async def approve_node(request: Request) -> Response:
    """`POST /api/nodes/{id}/approve`: lets a pending node in."""
    await gate.require_admin(request)
    node_id = gate.path_id(request)
    try:
        await gate.replica_of(request).roster.approve(node_id)
    except NodeUnknown:
        raise _unknown(node_id) from None
    return json_response({"id": node_id, "approved": True})


async def reaps(request: Request) -> Response:
    """`GET /api/reaps[?limit=]`: the newest first."""
    await gate.require_fleet_reader(request)
    text = request.query_params.get("limit", "200")
    whole = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_REAPS))
    if not whole or not 1 <= int(text) <= MOST_REAPS:
        raise ApiError("invalid", f"limit={text[:20]}: must be from 1 to {MOST_REAPS}")
    return json_response(await list_reaps(gate.replica_of(request).db, limit=int(text)))


async def instances(request: Request) -> Response:
    """`GET /api/instances`: every replica with a row."""
    await gate.require_fleet_reader(request)
    found = await gate.replica_of(request).registry.instances()
    return json_response(
        [
            {
                "id": one.id,
                "address": one.address,
                "started_at": one.started_at,
                "last_seen": one.last_seen,
                "live": one.live,
            }
            for one in found
        ]
    )


def _counted(replica: Replica, view: NodeView) -> NodeView:
    return replace(view, in_flight_count=replica.in_flight.of(view.id))


def _unknown(node_id: str) -> ApiError:
    return ApiError("node_not_found", f"there is no node {node_id}")


ROUTES = [
    Route("/api/nodes", list_nodes),
    Route("/api/nodes/{id}", get_node),
    Route("/api/nodes/{id}/explain", explain_node),
    Route("/api/nodes/{id}/approve", approve_node, methods=["POST"]),
    Route("/api/reaps", reaps),
    Route("/api/instances", instances),
]
