"""What a chat body may be, and how one that may not is refused: by name, with the remedy, at its cap."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from .served import answer, backend, served, worker

if TYPE_CHECKING:
    from pathlib import Path

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
REPLY = json.dumps({"choices": [{"message": {"content": "hello yourself"}}]}).encode()


BAD_BODIES = {
    "empty": (b"", "the body is not JSON"),
    "not JSON": (b"not json", "the body is not JSON"),
    "no model": (b'{"messages": []}', "`model`"),
    "a model that is no text": (b'{"model": 5}', "`$.model`"),
    "NUL in the name": (b'{"model": "a\\u0000b"}', "`$.model`"),
    "a right-to-left mark in the name": (b'{"model": "a\\u202eb"}', "`$.model`"),
    "a name of 300 characters": (b'{"model": "' + b"x" * 300 + b'"}', "`$.model`"),
    "nested 10,000 deep": (b'{"model": "m", "x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested deeper"),
    "a stream that is no flag": (b'{"model": "m", "stream": "yes"}', "`$.stream`"),
}
"""What is wrong, the body, and the thing the answer has to name."""


def test_bad_input_names_the_thing_and_the_remedy(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            refused = await front.http.post("/v1/chat/completions", content=b"not json")
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthorized")
            await front.admin()
            for what, (body, named) in BAD_BODIES.items():
                reply = await front.http.post("/v1/chat/completions", content=body)
                error = reply.json()["error"]
                assert (reply.status_code, error["code"]) == (400, "invalid"), what
                assert named in error["message"], f"{what} is not named: {error['message']}"
                assert "; try: " in error["message"], f"{what} has no remedy: {error['message']}"
            budget = {"X-Blackstart-Budget-Ms": "soon"}
            reply = await front.http.post("/v1/chat/completions", json=ASK, headers=budget)
            text = reply.json()["error"]["message"]
            assert text.startswith("x-blackstart-budget-ms=soon: "), text
            assert "; try: " in text, f"a budget has no remedy: {text}"
            reply = await front.http.get("/api/nodes/-n")
            error = reply.json()["error"]
            assert (reply.status_code, error["code"]) == (400, "invalid")
            assert "'-n' cannot be the id of a node" in error["message"]
            assert "; try: " in error["message"], f"an id has no remedy: {error['message']}"
            control = await front.http.post("/v1/chat/completions", json=ASK)
            assert control.json()["error"]["code"] == "model_not_found"
            assert "; try: " in control.json()["error"]["message"]

    asyncio.run(story())


def test_a_body_at_the_cap_passes_and_one_byte_more_does_not(url: str, tmp_path: Path) -> None:
    cap = 8 * 1024 * 1024

    def padded(size: int) -> bytes:
        head, tail = b'{"model": "m", "pad": "', b'"}'
        return head + b"x" * (size - len(head) - len(tail)) + tail

    async def story() -> None:
        async with (
            backend(answer(REPLY)) as process,
            served(url, tmp_path) as front,
            worker(front, models={"m": process}),
        ):
            await front.admin()
            at, past = padded(cap), padded(cap + 1)
            assert (await front.http.post("/v1/chat/completions", content=at)).content == REPLY
            assert process.requests[0].endswith(at)
            for content in (past, _in_pieces(past)):
                reply = await front.http.post("/v1/chat/completions", content=content)
                error = reply.json()["error"]
                assert (reply.status_code, error["code"]) == (413, "body_too_large")
                assert f"{cap} bytes" in error["message"]
                assert "; try: " in error["message"], f"a body has no remedy: {error['message']}"
            assert len(process.requests) == 1

    asyncio.run(story())


async def _in_pieces(body: bytes) -> Any:
    for at in range(0, len(body), 1 << 20):
        yield body[at : at + (1 << 20)]
