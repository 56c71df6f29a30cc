"""One answer being made: paced, counted, cut at its stop sequence or its token limit."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from inference_fleet.backends.babbler.speech import Manner, StopWatch, speak
from inference_fleet.backends.babbler.wire import BadRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from inference_fleet.backends.babbler.model import Model
    from inference_fleet.backends.babbler.wire import ChatRequest

MAX_ACTIVE = 256


@dataclass(kw_only=True)
class Stats:
    """What this process has done. `started` less `finished` and `active` were cut short by their clients."""

    active: int = 0
    started: int = 0
    finished: int = 0
    tokens: int = 0

    @contextmanager
    def generation(self) -> Iterator[None]:
        """Count one generation; leaving by an exception or a cancel does not count as finished."""
        if self.active >= MAX_ACTIVE:
            raise BadRequest(
                f"{MAX_ACTIVE} generations run already",
                remedy="again once one of them has ended",
                code="rate_limited",
                status=429,
            )
        self.started += 1
        self.active += 1
        try:
            yield
            self.finished += 1
        finally:
            self.active -= 1


@dataclass(frozen=True, kw_only=True)
class Speaker:
    """A model under the name it is served by; `tokens_per_second` 0 speaks as fast as it can."""

    name: str
    model: Model
    tokens_per_second: float = 0.0
    seed: int | None = None
    stats: Stats = field(default_factory=Stats)

    def answer(self, request: ChatRequest) -> Answer:
        """The answer to a request, not yet begun."""
        if request.model != self.name:
            raise BadRequest(
                f"model: {request.model!r} is not served by this process",
                remedy=repr(self.name),
                code="model_not_found",
                param="model",
                status=404,
            )
        given = request.seed if request.seed is not None else self.seed
        manner = Manner(
            seed=secrets.randbits(63) if given is None else given,
            temperature=1.0 if request.temperature is None else request.temperature,
            top_p=1.0 if request.top_p is None else request.top_p,
        )
        paces = [pace for pace in (self.tokens_per_second, request.pace_tokens_per_second or 0.0) if pace > 0]
        return Answer(speaker=self, request=request, manner=manner, pace=min(paces, default=0.0))


@dataclass(kw_only=True)
class Answer:
    """One answer: iterate `pieces()` once, then ask why it ended and what it cost."""

    speaker: Speaker
    request: ChatRequest
    manner: Manner
    pace: float
    finish_reason: str = "length"
    completion_tokens: int = 0
    prompt_tokens: int = 0
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))

    async def pieces(self) -> AsyncIterator[str]:
        """The text as it grows, a piece a token; a token held back for a stop sequence gives an empty piece."""
        model = self.speaker.model
        prompt = model.vocabulary.encode(self.request.prompt)
        self.prompt_tokens = len(prompt)
        watch = StopWatch(self.request.stops)
        begun = time.monotonic()
        said = ""
        for number in speak(model, prompt, self.manner):
            # each token is due by the clock of the whole answer: a late one is made up for, never added
            due = begun + (self.completion_tokens + 1) / self.pace if self.pace else 0.0
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            self.completion_tokens += 1
            self.speaker.stats.tokens += 1
            token = model.vocabulary.tokens[number]
            told = watch.feed(token if said else token.lstrip())
            said = said or told
            if watch.stopped:
                self.finish_reason = "stop"
                yield told
                return
            if self.completion_tokens == self.request.limit:
                yield told + watch.rest()
                return
            yield told

    @property
    def usage(self) -> dict[str, int]:
        """What the answer cost so far."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }

    def completion(self, text: str) -> dict[str, Any]:
        """The whole answer as one body."""
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        return {**self._frame("chat.completion"), "choices": [choice], "usage": self.usage}

    def chunk(self, delta: dict[str, str], *, last: bool = False) -> dict[str, Any]:
        """One piece of a streamed answer."""
        reason = self.finish_reason if last else None
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._frame("chat.completion.chunk"), "choices": [choice]}

    def usage_chunk(self) -> dict[str, Any]:
        """The extra piece `stream_options.include_usage` asks for."""
        return {**self._frame("chat.completion.chunk"), "choices": [], "usage": self.usage}

    def _frame(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.speaker.name,
            "system_fingerprint": f"babbler-{self.speaker.model.fingerprint}",
        }
