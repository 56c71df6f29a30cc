"""A value as a JSON answer."""

from __future__ import annotations

import msgspec
from starlette.responses import Response


def json_response(value: object, status: int = 200) -> Response:
    """Structs, dataclasses and plain values; times as RFC 3339."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")
