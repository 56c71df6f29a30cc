"""The OpenAI-compatible face of the fleet: which models there are, and chat with one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from starlette.routing import Route

from inference_fleet.frontend import bodies, gate
from inference_fleet.frontend.answers import json_response
from inference_fleet.frontend.errors import ApiError, retry_after
from inference_fleet.frontend.passage import Passage
from inference_fleet.frontend.placement import placed
from inference_fleet.frontend.tracing import trace_of
from inference_fleet.settings import Deadline
from inference_fleet.settings.plain import PLAIN

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

BUDGET_HEADER = "x-blackstart-budget-ms"
_BUDGET_DIGITS = 12


class _Wanted(msgspec.Struct, frozen=True):
    """What a replica has to know of a chat request; everything else is the model process's business."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256, pattern=rf"^{PLAIN}+\Z")]
    stream: bool | None = None


async def models(request: Request) -> Response:
    """`GET /v1/models`: what somebody can serve now."""
    await gate.require_user(request)
    names = await gate.replica_of(request).roster.model_names()
    data = [{"id": name, "object": "model", "created": 0, "owned_by": "blackstart"} for name in names]
    return json_response({"object": "list", "data": data})


async def chat(request: Request) -> Passage:
    """`POST /v1/chat/completions`, streaming and not."""
    replica = gate.replica_of(request)
    deadline = _deadline(request, replica.settings.timings.request_s)
    await gate.require_user(request)
    body = await bodies.read_body(request, limit=bodies.LARGE, within_s=replica.settings.timings.body_read_s)
    wanted = bodies.decode(body, _Wanted)
    if replica.table.closing:
        raise ApiError("draining", "this replica is going away; ask another", headers=retry_after(1))
    traceparent = trace_of(request.scope).child().traceparent
    return Passage(
        replica,
        place=placed(replica, wanted.model, deadline=deadline, traceparent=traceparent),
        path="/v1/chat/completions",
        body=body,
        headers={
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if wanted.stream else "application/json",
            "Accept-Encoding": "identity",
            "traceparent": traceparent,
        },
        deadline=deadline,
    )


def _deadline(request: Request, longest_s: float) -> Deadline:
    """The replica's own limit, or the caller's budget where that is shorter."""
    text = request.headers.get(BUDGET_HEADER)
    if text is None:
        return Deadline.after(longest_s)
    if not text.isascii() or not text.isdigit() or len(text) > _BUDGET_DIGITS or int(text) == 0:
        raise ApiError(
            "invalid",
            f"{BUDGET_HEADER}={text[:32]}: must be whole milliseconds, 1 or more; try: {longest_s * 1000:.0f}",
        )
    return Deadline.from_budget_ms(int(text), longest_s=longest_s)


ROUTES = [
    Route("/v1/models", models),
    Route("/v1/chat/completions", chat, methods=["POST"]),
]
