"""The babbler over HTTP: an OpenAI-shaped chat endpoint whose work ends the moment its client does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from inference_fleet.backends.asgi import (
    BodyTooLarge,
    ClientGone,
    answer_json,
    read_body,
    start,
    while_connected,
)
from inference_fleet.backends.babbler.wire import BODY_LIMIT, BadRequest, read_request

if TYPE_CHECKING:
    from inference_fleet.backends.asgi import Receive, Send
    from inference_fleet.backends.babbler.generation import Answer, Speaker


class App:
    """`POST /v1/chat/completions`, `GET /v1/models`, `GET /stats`, `GET /healthz`."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._pages = {"/healthz": self._healthz, "/stats": self._stats, "/v1/models": self._models}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; every refusal is a body with a reason."""
        assert scope["type"] == "http", "served without lifespan and WebSockets"
        try:
            await self._route(scope["method"], scope["path"], receive, send)
        except BadRequest as error:
            await answer_json(send, error.status, error.body)
        except BodyTooLarge as error:
            refusal = BadRequest(str(error), remedy="a shorter one", code="body_too_large", status=413)
            await answer_json(send, refusal.status, refusal.body)
        except ClientGone:
            return

    async def _route(self, method: str, path: str, receive: Receive, send: Send) -> None:
        expected = "POST" if path == "/v1/chat/completions" else "GET"
        if expected == "GET" and path not in self._pages:
            raise BadRequest(
                f"nothing lies at {path[:128]}", remedy="/v1/chat/completions", code="not_found", status=404
            )
        if method != expected:
            text = f"{method[:32]} is not a method of {path}"
            raise BadRequest(text, remedy=expected, code="method_not_allowed", status=405)
        if expected == "GET":
            await answer_json(send, 200, self._pages[path]())
            return
        answer = self._speaker.answer(read_request(await read_body(receive, limit=BODY_LIMIT)))
        with self._speaker.stats.generation():
            work = _stream(answer, send) if answer.request.stream else _whole(answer, send)
            if not await while_connected(receive, work):
                raise ClientGone

    def _healthz(self) -> dict[str, str]:
        return {"status": "ok"}

    def _stats(self) -> dict[str, int]:
        stats = self._speaker.stats
        return {
            "active": stats.active,
            "started": stats.started,
            "finished": stats.finished,
            "tokens": stats.tokens,
        }

    def _models(self) -> dict[str, Any]:
        entry = {"id": self._speaker.name, "object": "model", "created": 0, "owned_by": "blackstart"}
        return {"object": "list", "data": [entry]}


async def _whole(answer: Answer, send: Send) -> None:
    text = "".join([piece async for piece in answer.pieces()])
    await answer_json(send, 200, answer.completion(text))


async def _stream(answer: Answer, send: Send) -> None:
    await start(send, 200, "text/event-stream", headers=[(b"cache-control", b"no-cache")])
    await _event(send, answer.chunk({"role": "assistant", "content": ""}))
    async for piece in answer.pieces():
        if piece:
            await _event(send, answer.chunk({"content": piece}))
    await _event(send, answer.chunk({}, last=True))
    if answer.request.stream_options and answer.request.stream_options.include_usage:
        await _event(send, answer.usage_chunk())
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


async def _event(send: Send, value: object) -> None:
    body = b"data: " + msgspec.json.encode(value) + b"\n\n"
    await send({"type": "http.response.body", "body": body, "more_body": True})
