"""Reading what a client sends: a cap before anything is decoded, a deadline for slow senders, types at the edge."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import msgspec
from starlette.requests import ClientDisconnect

from inference_fleet.frontend.errors import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request

LARGE = 8 * 1024 * 1024
"""Chat and control bodies."""

SMALL = 64 * 1024
"""Logins and keys."""

MEDIUM = 1024 * 1024
"""Registrations and heartbeats: 256 models and 64 labels fit many times over."""

T = TypeVar("T")


async def read_body(request: Request, *, limit: int, within_s: float) -> bytes:
    """The whole body. One byte past `limit` is 413, a sender slower than `within_s` is 408."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(within_s):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
    except TimeoutError:
        raise ApiError(
            "body_timeout",
            f"the body did not arrive within {within_s:g} s ({size} bytes did); try: send it without a pause",
        ) from None
    except ClientDisconnect:
        raise ApiError(
            "invalid", "the client left before its body was complete; try: send all of Content-Length"
        ) from None
    return b"".join(parts)


def decode(body: bytes, kind: type[T]) -> T:
    """The body as a value of a type; whatever is wrong with it is a 400 that says where, and what to change."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise ApiError("invalid", f"the body does not fit: {error}; try: change that field") from None
    except RecursionError:
        raise ApiError("invalid", "the body is nested deeper than a body may be; try: nest it less") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError("invalid", f"the body is not JSON: {error}; try: one JSON object in UTF-8") from None


async def read_json(request: Request, kind: type[T], *, limit: int, within_s: float) -> T:
    """Read, then decode."""
    return decode(await read_body(request, limit=limit, within_s=within_s), kind)


def _too_large(limit: int) -> ApiError:
    text = f"the body is larger than the {limit} bytes this path takes; try: a shorter one"
    return ApiError("body_too_large", text)
