"""What machines ask a replica about itself: is it there, may it be sent requests, and its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.routing import Route

from inference_fleet.frontend import gate
from inference_fleet.frontend.answers import json_response
from inference_fleet.telemetry.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from starlette.requests import Request


async def healthz(_request: Request) -> Response:
    """`GET /healthz`: the process answers."""
    return json_response({"status": "ok"})


async def readyz(request: Request) -> Response:
    """`GET /readyz`: 200 `ready`; 200 `degraded` while the database is out, since open tunnels still serve; 503 when leaving.

    A balancer that took every replica out because of one database would turn an outage of new requests into
    an outage of all of them.
    """
    replica = gate.replica_of(request)
    if not replica.ready:
        return json_response({"status": "leaving", "instance": replica.settings.instance_id}, 503)
    trouble = replica.trouble()
    return json_response(
        {
            "status": "degraded" if trouble else "ready",
            "instance": replica.settings.instance_id,
            "tunnels": len(replica.table.held()),
            **({"reason": trouble} if trouble else {}),
        }
    )


async def metrics(request: Request) -> Response:
    """`GET /metrics`: Prometheus text."""
    return Response(gate.replica_of(request).metrics.render(), headers={"Content-Type": CONTENT_TYPE})


ROUTES = [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]
