"""Every answer that is not what was asked for: one shape, one table of stable codes.

`{"error": {"message", "type", "code"}}`; `code` is the word programs key on, the message is for people.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Code:
    """One code: its HTTP status and its OpenAI error type."""

    status: int
    type: str


_INVALID = "invalid_request_error"
_SERVER = "server_error"

CODES: dict[str, Code] = {
    "invalid": Code(400, _INVALID),
    "unauthorized": Code(401, "authentication_error"),
    "forbidden": Code(403, "permission_error"),
    "not_found": Code(404, _INVALID),
    "model_not_found": Code(404, _INVALID),
    "node_not_found": Code(404, _INVALID),
    "method_not_allowed": Code(405, _INVALID),
    "body_timeout": Code(408, _INVALID),
    "name_taken": Code(409, _INVALID),
    "boot_conflict": Code(409, _INVALID),
    "boot_superseded": Code(409, _INVALID),
    "epoch_leap": Code(409, _INVALID),
    "body_too_large": Code(413, _INVALID),
    "rate_limited": Code(429, "rate_limit_error"),
    "internal": Code(500, _SERVER),
    "backend_failed": Code(502, _SERVER),
    "no_route": Code(503, _SERVER),
    "loading": Code(503, _SERVER),
    "stale_owner": Code(503, _SERVER),
    "unavailable": Code(503, _SERVER),
    "database_unavailable": Code(503, _SERVER),
    "draining": Code(503, _SERVER),
    "too_many_handshakes": Code(503, _SERVER),
    "deadline_exceeded": Code(504, _SERVER),
    "stream_broken": Code(502, _SERVER),
}


class ApiError(Exception):
    """Raised anywhere under a route; becomes the answer."""

    def __init__(self, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
        super().__init__(f"{code}: {message}")

    @property
    def status(self) -> int:
        """The HTTP status of the answer."""
        return CODES[self.code].status


def retry_after(seconds: float) -> dict[str, str]:
    """A `Retry-After` header: whole seconds, at least one, never earlier than it is worth trying."""
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


def error_body(code: str, message: str) -> bytes:
    """The bytes of an error answer, also used inside an event stream."""
    return msgspec.json.encode({"error": {"message": message, "type": CODES[code].type, "code": code}})


def error_response(error: ApiError) -> Response:
    """The answer to a request that failed."""
    return Response(
        error_body(error.code, error.message), error.status, error.headers, media_type="application/json"
    )


async def on_api_error(_request: Request, error: Exception) -> Response:
    """Starlette's handler for `ApiError`."""
    assert isinstance(error, ApiError)
    return error_response(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own refusals (no such path, wrong method) in our shape."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    path = request.url.path[:200]
    if error.status_code == HTTPStatus.NOT_FOUND:
        return error_response(ApiError("not_found", f"there is nothing at {path}", headers=headers))
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        text = f"{request.method} is not a method of {path}; try: {headers.get('Allow', 'another one')}"
        return error_response(ApiError("method_not_allowed", text, headers=headers))
    return error_response(ApiError("invalid", error.detail, headers=headers))


def database_out(error: Exception) -> ApiError:
    """The database is out: nothing is said about what was asked for, tunnels stay up, asking again is right.

    Where it is and what it said is for our own log: whoever asked may not be authenticated yet.
    """
    _log.warning("a request met an outage of the database: %s", error)
    text = "the database does not answer, so this cannot be looked up now; open tunnels are unaffected"
    return ApiError("database_unavailable", text, headers=retry_after(1))


async def on_database_unavailable(_request: Request, error: Exception) -> Response:
    """Starlette's handler for `DatabaseUnavailable`."""
    return error_response(database_out(error))


async def on_failure(request: Request, error: Exception) -> Response:
    """What nobody expected: the caller learns that it was us, the log learns what it was."""
    _log.error("unexpected failure in %s %s", request.method, request.url.path[:200], exc_info=error)
    return error_response(
        ApiError("internal", "this replica failed to answer; its log says why (same trace id)")
    )
