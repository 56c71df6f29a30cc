"""Each request continues its caller's trace, and every line logged for it carries the ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from inference_fleet.telemetry.logs import bound
from inference_fleet.telemetry.trace import TraceContext

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

_SCOPE_KEY = "blackstart.trace"


class TraceMiddleware:
    """Plain ASGI, so that nothing stands between a route and the client's disconnect."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Bind the ids around whatever serves the request."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        trace = TraceContext.continued(Headers(scope=scope).get("traceparent"))
        scope[_SCOPE_KEY] = trace
        with bound(trace=trace.trace_id, span=trace.span_id):
            await self._app(scope, receive, send)


def trace_of(scope: Scope) -> TraceContext:
    """The trace a request belongs to."""
    trace: TraceContext = scope[_SCOPE_KEY]
    return trace
