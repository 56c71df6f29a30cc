"""The bodies of this backend's HTTP interface, in the shape OpenAI's clients expect, each with its limits."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

BODY_LIMIT = 256 * 1024
MAX_TOKENS = 8192
DEFAULT_MAX_TOKENS = 128
_SEED_RANGE = 2**63 - 1

Text = Annotated[str, msgspec.Meta(max_length=65536)]
Stop = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a message's content; this model reads text alone."""

    type: Annotated[str, msgspec.Meta(pattern="^text$")]
    text: Text


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a chat."""

    role: Annotated[str, msgspec.Meta(pattern="^(system|developer|user|assistant|tool)$")]
    content: Text | Annotated[list[Part], msgspec.Meta(max_length=64)] | None = None

    @property
    def text(self) -> str:
        """The message's words."""
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream carries besides its text."""

    include_usage: bool = False


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`POST /v1/chat/completions`. Fields this model has no use for are passed over, as such servers do.

    `pace_tokens_per_second` is this backend's own: speak slower than the model's configured pace.
    """

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    messages: Annotated[list[Message], msgspec.Meta(min_length=1, max_length=256)]
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=1)] | None = None
    seed: Annotated[int, msgspec.Meta(ge=-_SEED_RANGE, le=_SEED_RANGE)] | None = None
    stop: Stop | Annotated[list[Stop], msgspec.Meta(max_length=4)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    pace_tokens_per_second: Annotated[float, msgspec.Meta(ge=0.1, le=10000)] | None = None

    @property
    def limit(self) -> int:
        """How many tokens the answer may have."""
        return self.max_completion_tokens or self.max_tokens or DEFAULT_MAX_TOKENS

    @property
    def stops(self) -> tuple[str, ...]:
        """The sequences that end the answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def prompt(self) -> str:
        """What the model reads: the messages in order."""
        return "\n\n".join(message.text for message in self.messages)


class BadRequest(Exception):
    """A request this backend does not take; `status`, `code`, the field at fault if one is, and always a remedy."""

    def __init__(
        self, message: str, *, remedy: str, code: str = "invalid", param: str | None = None, status: int = 400
    ) -> None:
        super().__init__(f"{message}; try: {remedy}")
        self.status = status
        self.code = code
        self.param = param

    @property
    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


_decoder = msgspec.json.Decoder(ChatRequest)
_AT = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"missing required field `(?P<field>[^`]+)`")


def read_request(body: bytes) -> ChatRequest:
    """The request in a body, or `BadRequest` naming the field."""
    try:
        request = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _named(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}", remedy="one JSON object in UTF-8") from None
    except RecursionError:
        raise BadRequest(
            "the body nests too deep", remedy="the four levels that a chat request needs"
        ) from None
    together = sum(len(message.text) for message in request.messages)
    if together > BODY_LIMIT:
        raise BadRequest(
            f"messages: {together} characters together, more than {BODY_LIMIT}",
            remedy="fewer or shorter messages",
            param="messages",
        )
    return request


def _named(text: str) -> BadRequest:
    at = _AT.search(text)
    path = at["path"] if at else ""
    what, remedy = _AT.sub("", text), "change that field" if path else "one JSON object"
    if missing := _MISSING.search(what):
        path = f"{path}.{missing['field']}".lstrip(".")
        what, remedy = "is required", "send that field"
    return BadRequest(f"{path or 'the body'}: {what}", remedy=remedy, param=path or None)
