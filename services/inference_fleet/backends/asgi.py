"""The few moves of a small ASGI application: a bounded body, a JSON answer, work that ends with its client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    Event = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Event]]
    Send = Callable[[Event], Awaitable[None]]


DRAIN_LIMIT = 16 * 1024 * 1024
"""How much of a refused body is read to its end; the frontends pass on half of that at most."""


class BodyTooLarge(Exception):
    """A request body past its limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is longer than {limit} bytes")


class ClientGone(Exception):
    """The client hung up."""


async def read_body(receive: Receive, *, limit: int) -> bytes:
    """The request's whole body.

    One past `limit` is read on and forgotten, up to `DRAIN_LIMIT`, before it is `BodyTooLarge`: a connection that is
    closed on unread bytes is reset, and the reset overtakes the answer that says why.
    """
    body = bytearray()
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        piece = event.get("body", b"")
        size += len(piece)
        if size <= limit:
            body += piece
        ended = not event.get("more_body", False)
        if size > limit and (ended or size > DRAIN_LIMIT):
            raise BodyTooLarge(limit)
        if ended:
            return bytes(body)


async def start(
    send: Send, status: int, content_type: str, *, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """The head of an answer whose body follows."""
    described = [(b"content-type", content_type.encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": described})


async def answer_json(send: Send, status: int, value: object) -> None:
    """A whole JSON answer."""
    body = msgspec.json.encode(value)
    await start(send, status, "application/json", headers=[(b"content-length", str(len(body)).encode())])
    await send({"type": "http.response.body", "body": body})


async def while_connected(receive: Receive, work: Awaitable[None]) -> bool:
    """Run `work` to its end, or until the client hangs up, which cancels it at once; whether it ended.

    Called when the body is read: all that `receive` has left to say is that the client is gone.
    """
    working = asyncio.ensure_future(work)
    listening = asyncio.ensure_future(_hang_up(receive))
    try:
        await asyncio.wait({working, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        await working
        return True
    finally:
        for task in (working, listening):
            task.cancel()
        await asyncio.gather(working, listening, return_exceptions=True)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
