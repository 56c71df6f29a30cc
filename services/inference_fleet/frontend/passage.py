"""One request passed through to a model process and its answer passed back, unbuffered, for as long as both want it.

| what happens                                     | the caller gets                                                        |
|--------------------------------------------------|------------------------------------------------------------------------|
| it leaves, at whatever moment                    | (nothing); the stream is reset, so the generation stops                |
| it breaks before the first byte                  | 502 `stream_broken` or `backend_failed`                                |
| the caller's time runs out before the first byte | 504 `deadline_exceeded`                                                |
| it breaks after the first byte of an event stream| `data: {"error": ...}` as the last event, and no `[DONE]`              |
| it breaks after the first byte of anything else  | a connection cut before the promised end                               |
"""

from __future__ import annotations

import asyncio
import io
import logging
from typing import TYPE_CHECKING

import aiohttp

from inference_fleet.frontend.errors import ApiError, error_body
from inference_fleet.frontend.event_lines import EventLines, error_event
from inference_fleet.telemetry.logs import bound
from inference_fleet.tunnel.http import stream_client, tunnel_error

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Receive, Scope, Send

    from inference_fleet.frontend.placement import Placed
    from inference_fleet.frontend.replica import Replica
    from inference_fleet.settings import Deadline
    from inference_fleet.tunnel import Stream

_PASSED_BACK = frozenset(
    {"content-type", "content-length", "content-encoding", "cache-control", "retry-after", "x-request-id"}
)
_log = logging.getLogger(__name__)


class Passage:
    """An ASGI response: places the request, sends it, passes the answer back; races the client's disconnect."""

    def __init__(
        self,
        replica: Replica,
        *,
        place: AbstractAsyncContextManager[Placed],
        path: str,
        body: bytes,
        headers: dict[str, str],
        deadline: Deadline,
    ) -> None:
        self._replica = replica
        self._place = place
        self._path = path
        self._body = body
        self._headers = headers
        self._deadline = deadline
        self._started = False
        self._events: EventLines | None = None
        self._stream: Stream | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- ASGI's own form
        """Run until the answer is through or the client is gone, whichever comes first."""
        work = asyncio.create_task(self._bounded(send), name=f"passage {self._path}")
        gone = asyncio.create_task(_until_disconnect(receive), name=f"disconnect {self._path}")
        try:
            await asyncio.wait([work, gone], return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
            else:
                _log.info("the client left; its request is cancelled to the end")
        finally:
            gone.cancel()
            work.cancel()
            await asyncio.wait([work, gone])
            if not work.cancelled():
                work.exception()  # raised above, or of no interest to a client that is gone

    async def _bounded(self, send: Send) -> None:
        broken: ApiError
        try:
            async with asyncio.timeout(self._deadline.remaining_s):
                async with self._place as placed:
                    with bound(node=placed.candidate.node_id, epoch=placed.opened.epoch):
                        await self._pass(placed, send)
        except TimeoutError:
            broken = ApiError(
                "deadline_exceeded", "the request's time ran out before its answer was complete"
            )
        except (aiohttp.ClientError, OSError) as error:
            broken = self._broken(error)
        else:
            return
        await self._tell(broken, send)

    async def _pass(self, placed: Placed, send: Send) -> None:
        self._stream = placed.opened.stream
        stream: Stream | None = self._stream

        async def take() -> Stream:
            nonlocal stream
            assert stream is not None, "one request a stream"
            taken, stream = stream, None
            return taken

        try:
            async with (
                stream_client(take) as client,
                client.post(
                    f"http://{placed.candidate.node_name}{self._path}",
                    data=io.BytesIO(self._body),
                    headers=self._headers,
                ) as answer,
            ):
                await self._start(answer, placed, send)
                async for chunk in answer.content.iter_any():
                    await self._more(chunk, send)
                await self._end(send)
        finally:
            if stream is not None:
                stream.abort()

    async def _start(self, answer: aiohttp.ClientResponse, placed: Placed, send: Send) -> None:
        headers = [
            (name.lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in answer.headers.items()
            if name.lower() in _PASSED_BACK
        ]
        if self._replica.settings.expose_route:
            headers += [
                (b"x-blackstart-node", placed.candidate.node_id.encode("latin-1")),
                (b"x-blackstart-route", placed.opened.route.encode("latin-1")),
            ]
        if answer.content_type == "text/event-stream" and "content-encoding" not in answer.headers:
            self._events = EventLines()
            headers = [(name, value) for name, value in headers if name != b"content-length"]
        self._started = True
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})

    async def _more(self, chunk: bytes, send: Send) -> None:
        data = chunk if self._events is None else self._events.feed(chunk)
        if data:
            await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _end(self, send: Send) -> None:
        tail = b"" if self._events is None else self._events.rest()
        if self._events is not None and not self._events.done:
            tail += error_event(
                error_body("stream_broken", "the model process ended its answer before its end mark")
            )
        await send({"type": "http.response.body", "body": tail, "more_body": False})

    def _broken(self, error: Exception) -> ApiError:
        """The tunnel's own account where it has one: what the HTTP client saw is only what that did to it."""
        cause = tunnel_error(error) or (None if self._stream is None else self._stream.error)
        if cause is not None:
            return ApiError("stream_broken", f"the way to the model process broke: {cause}")
        code = "stream_broken" if self._started else "backend_failed"
        return ApiError(code, f"the model process broke off its answer: {str(error) or type(error).__name__}")

    async def _tell(self, broken: ApiError, send: Send) -> None:
        """The failure in whatever form the answer has by now."""
        if not self._started:
            raise broken
        _log.warning("an answer broke after its first byte: %s", broken)
        if self._events is not None:
            event = error_event(error_body(broken.code, broken.message))
            await send({"type": "http.response.body", "body": event, "more_body": False})
        # Otherwise the server is left with an answer that is not complete, and cuts the connection.


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
