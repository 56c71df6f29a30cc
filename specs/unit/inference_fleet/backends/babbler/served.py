"""A babbler behind a real server on a free loopback port, and a client for it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec

from inference_fleet.backends.babbler.app import App
from inference_fleet.backends.babbler.generation import Speaker
from inference_fleet.backends.babbler.model import Model, corpus
from inference_fleet.backends.serving import listen, server_of
from inference_fleet.settings import Timings
from inference_fleet.settings.loopback import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

TIMINGS = Timings.drill()
MODEL = Model.train(corpus())


@dataclass
class Served:
    """A running babbler: its port, its speaker, and an HTTP client."""

    port: int
    speaker: Speaker
    client: httpx2.AsyncClient

    async def chat(self, prompt: str = "Tell me about the harbour.", **fields: Any) -> httpx2.Response:
        return await self.client.post("/v1/chat/completions", json=request_body(prompt, **fields))

    async def text(self, prompt: str = "Tell me about the harbour.", **fields: Any) -> str:
        answer = await self.chat(prompt, **fields)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])

    async def events(self, **fields: Any) -> list[Any]:
        """The events of a streamed answer, decoded; `[DONE]` stays text."""
        answer = await self.chat(stream=True, **fields)
        lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
        return [line if line == "[DONE]" else msgspec.json.decode(line) for line in lines]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a state of the speaker, at most as long as a stream may take to open."""
        async with asyncio.timeout(TIMINGS.stream_open_s):
            while not condition():
                await self.client.get("/healthz")


def request_body(prompt: str = "Tell me about the harbour.", **fields: Any) -> dict[str, Any]:
    return {"model": "b", "messages": [{"role": "user", "content": prompt}], **fields}


@asynccontextmanager
async def served(*, seed: int | None = None, tokens_per_second: float = 0.0) -> AsyncIterator[Served]:
    speaker = Speaker(name="b", model=MODEL, seed=seed, tokens_per_second=tokens_per_second)
    server = server_of(App(speaker), keep_alive_s=TIMINGS.request_s)
    with listen(LOOPBACK, 0) as listener:
        port = listener.getsockname()[1]
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            async with httpx2.AsyncClient(
                base_url=f"http://{LOOPBACK}:{port}", trust_env=False, timeout=TIMINGS.request_s
            ) as client:
                yield Served(port, speaker, client)
        finally:
            server.should_exit = server.force_exit = True
            await task
