"""The harness's own way to a replica: one synchronous client each, bounded, that never follows anybody's proxy settings."""

from __future__ import annotations

import ssl
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx2

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ANSWER_LIMIT = 8 * 1024 * 1024


class UnexpectedAnswer(AssertionError):
    """An answer with another status than the request was made for; the text carries method, URL, status and body."""

    def __init__(self, request: str, status: int, body: str, wanted: str) -> None:
        self.status = status
        self.body = body
        super().__init__(f"{request} answered {status} {body[:500]!r}, wanted {wanted}")


def client_of(base_url: str, *, within: float, headers: Mapping[str, str] | None = None) -> httpx2.Client:
    """A client for one replica. `within` bounds connecting and every read; nothing of the environment is believed."""
    return httpx2.Client(
        base_url=base_url,
        timeout=httpx2.Timeout(within),
        headers=dict(headers or {}),
        trust_env=False,
        verify=_trusted(),
    )


@cache
def _trusted() -> ssl.SSLContext:
    """One for all clients: reading the certificates costs thirty milliseconds, and a wait makes a client at each look."""
    return ssl.create_default_context()


def believe(ca_file: Path) -> None:
    """From here on clients believe this authority too, until the process ends."""
    _trusted().load_verify_locations(ca_file)


def json_of(answer: httpx2.Response, *wanted: int) -> Any:
    """The body of an answer that has one of the wanted statuses."""
    if answer.status_code not in wanted:
        expected = " or ".join(str(status) for status in wanted)
        request = f"{answer.request.method} {answer.request.url}"
        raise UnexpectedAnswer(request, answer.status_code, answer.text, expected)
    return answer.json()


def error_code(body: Any) -> str:
    """The stable word of an error body `{"error": {"code": ...}}`, or empty."""
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("code") or "") if isinstance(error, dict) else ""


def error_message(body: Any) -> str:
    """The sentence of an error body, or empty."""
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message") or "") if isinstance(error, dict) else ""
