"""The frontends as a worker sees them: several addresses or one balancer, JSON in, a bounded answer out."""

from __future__ import annotations

import asyncio
import ssl
import zlib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2
import msgspec

from inference_fleet.tunnel.certificates import tls_failure

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from inference_fleet.settings import WorkerSettings

_ANSWER_LIMIT = 64 * 1024
_QUOTE_LIMIT = 500
_T = TypeVar("_T")


class Unreachable(ConnectionError):
    """No answer came from an address; says nothing about what the frontends think."""


class Rotation:
    """One of several addresses at a time; each user has its own place.

    The first place comes from the node's name, so that a fleet's workers spread over the addresses alike at
    every start, and one worker always starts at the same one.
    """

    def __init__(self, urls: Sequence[str], *, node_name: str) -> None:
        self._urls = tuple(urls)
        self._place = zlib.crc32(node_name.encode()) % len(self._urls)

    @property
    def current(self) -> str:
        """The address to use now."""
        return self._urls[self._place]

    def advance(self) -> str:
        """The next one: the current one did not serve."""
        self._place = (self._place + 1) % len(self._urls)
        return self.current


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a frontend said."""

    url: str
    status: int
    body: bytes
    retry_after_s: float | None

    @property
    def code(self) -> str:
        """The stable word of an error body, or an empty text."""
        try:
            return msgspec.json.decode(self.body, type=_ErrorBody).error.code
        except (msgspec.DecodeError, RecursionError):
            return ""

    def quote(self, *secrets: str) -> str:
        """The body for a log line or an error: bounded, one line, none of `secrets` in it."""
        text = self.body.decode(errors="replace")
        for secret in secrets:
            text = text.replace(secret, "***")
        text = "".join(c if c.isprintable() else " " for c in text).strip()
        return text[:_QUOTE_LIMIT] + ("..." if len(text) > _QUOTE_LIMIT else "") if text else "(empty body)"


class _Error(msgspec.Struct, frozen=True):
    code: str = ""


class _ErrorBody(msgspec.Struct, frozen=True):
    error: _Error


class Frontends:
    """Posts to the frontends; made by `connect`."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    @classmethod
    @asynccontextmanager
    async def connect(cls, settings: WorkerSettings) -> AsyncIterator[Frontends]:
        """A client for as long as the block runs.

        No connection is kept between posts: behind a balancer a kept one goes on leading to a replica that is
        paused or on its way out. `HTTPS_PROXY`, `NO_PROXY` and `SSL_CERT_FILE` hold.
        """
        limits = httpx2.Limits(max_connections=8, max_keepalive_connections=0)
        async with httpx2.AsyncClient(
            verify=trust(settings.frontend_urls), limits=limits, timeout=None, trust_env=True
        ) as client:
            yield cls(client)

    async def post(
        self, url: str, path: str, body: msgspec.Struct, *, bearer: str, within_s: float
    ) -> Answer:
        """Post one body to one address; `Unreachable` when no whole answer came in time."""
        headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
        try:
            async with (
                asyncio.timeout(within_s),
                self._client.stream(
                    "POST", f"{url}{path}", content=msgspec.json.encode(body), headers=headers
                ) as response,
            ):
                content = bytearray()
                async for piece in response.aiter_raw():
                    content += piece
                    if len(content) > _ANSWER_LIMIT:
                        raise Unreachable(f"{url}{path}: the answer is longer than {_ANSWER_LIMIT} bytes")
                return Answer(
                    url=f"{url}{path}",
                    status=response.status_code,
                    body=bytes(content),
                    retry_after_s=_seconds(response.headers.get("Retry-After")),
                )
        except TimeoutError:
            raise Unreachable(f"{url}{path}: no answer within {within_s:g} s") from None
        except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
            if isinstance(error, Unreachable):
                raise
            said = tls_failure(error) or str(error) or type(error).__name__
            raise Unreachable(f"{url}{path}: {said}") from error


def decoded(answer: Answer, kind: type[_T]) -> _T:
    """The answer's body as `kind`, or `Unreachable`: whoever answers so is not one of our frontends."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreachable(
            f"{answer.url}: HTTP {answer.status} with a body that is no answer: {error}"
        ) from None


def trust(urls: Sequence[str]) -> ssl.SSLContext:
    """Who to trust: the system's authorities, read only where an address asks for TLS since reading them is slow."""
    if any(url.startswith("https:") for url in urls):
        return ssl.create_default_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return seconds if 0 <= seconds < float("inf") else None
