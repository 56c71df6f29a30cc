"""The worker's own server on loopback: health, readiness, metrics. Frontends reach it by `http` streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from inference_fleet.backends.asgi import answer_json, start
from inference_fleet.telemetry.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from inference_fleet.backends.asgi import Receive, Send
    from inference_fleet.telemetry.metrics import Metrics


class Connected(Protocol):
    """What readiness looks at, and all it may know of a tunnel."""

    why_not: str

    @property
    def connected(self) -> bool:
        """Whether a frontend can open streams now."""


class Readiness:
    """Whether this worker can be reached: its tunnel stands and it is not stopping."""

    def __init__(self) -> None:
        self.tunnel: Connected | None = None
        self.stopping = False

    @property
    def reason(self) -> str:
        """Why it is not ready; empty when it is."""
        if self.stopping:
            return "this worker is stopping"
        if self.tunnel is None:
            return "not registered yet"
        return "" if self.tunnel.connected else f"no tunnel: {self.tunnel.why_not}"


class App:
    """`GET /healthz`, `GET /readyz`, `GET /metrics`."""

    def __init__(self, *, readiness: Readiness, metrics: Metrics) -> None:
        self._readiness = readiness
        self._metrics = metrics

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        del receive  # no page reads a body
        path = scope["path"]
        if scope["method"] != "GET":
            await answer_json(send, 405, _error("this server answers GET only", "method_not_allowed"))
        elif path == "/healthz":
            await answer_json(send, 200, {"status": "ok"})
        elif path == "/readyz":
            reason = self._readiness.reason
            status, body = (503, _error(reason, "not_ready")) if reason else (200, {"status": "ready"})
            await answer_json(send, status, body)
        elif path == "/metrics":
            await start(send, 200, CONTENT_TYPE)
            await send({"type": "http.response.body", "body": self._metrics.render()})
        else:
            await answer_json(send, 404, _error(f"nothing lies at {path[:128]}", "not_found"))


def _error(message: str, code: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "worker", "code": code}}
