"""One chat request of a rehearsal, from its first byte to a named end: complete, an error by name, or cut.

A stream is read by a thread of its own, so a spec may kill processes while many are under way. Every stream ends: each
read is bounded, and whatever ends it becomes one of the three results.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import httpx2

from blackstart.fleet.http import client_of, error_code, error_message

if TYPE_CHECKING:
    from collections.abc import Mapping

_NODE_HEADER = "X-Blackstart-Node"
_ROUTE_HEADER = "X-Blackstart-Route"
_TEXT_LIMIT = 4 * 1024 * 1024


class Result(StrEnum):
    """How a chat ended."""

    COMPLETE = "complete"
    ERROR = "error"
    CUT = "cut"


@dataclass(kw_only=True)
class Chat:
    """What came back. `error` is the stable word of a named error; `why` says more for error and cut."""

    result: Result | None = None
    status: int | None = None
    text: str = ""
    node: str = ""
    route: str = ""
    error: str = ""
    why: str = ""
    finish_reason: str = ""
    usage: Mapping[str, Any] = field(default_factory=dict)
    pieces: int = 0

    @property
    def ok(self) -> bool:
        """Whether it is complete."""
        return self.result is Result.COMPLETE

    def __str__(self) -> str:
        """One line for verdicts."""
        end = self.result or "under way"
        more = f" {self.error or self.why}" if not self.ok and (self.error or self.why) else ""
        return f"{end}{more} (route={self.route or '-'} pieces={self.pieces} text={self.text[:40]!r})"


def body_of(model: str, prompt: str, **more: Any) -> dict[str, Any]:
    """A request's body; fields that are None are left out."""
    given = {name: value for name, value in more.items() if value is not None}
    return {"model": model, "messages": [{"role": "user", "content": prompt}], **given}


class PendingChat:
    """A request under way, streamed or not. `wait` for its end, or `hang_up` as a client does that lost interest."""

    def __init__(
        self, base_url: str, headers: Mapping[str, str], body: Mapping[str, Any], *, within: float
    ) -> None:
        """Starts at once. `within` bounds connecting and each silence of the answer."""
        self.chat = Chat()
        self.body = dict(body)
        self._within = within
        self._base_url = base_url
        self._headers = dict(headers)
        self._socket: socket.socket | None = None
        self._hung_up = False
        self._spoke = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="blackstart-chat", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether it has its result."""
        return self._ended.is_set()

    def wait_for_text(self, *, within: float) -> None:
        """Return when the first piece of text, or the end, is there."""
        if not self._spoke.wait(within):
            raise TimeoutError(f"no first piece within {within:g} s: {self.chat}")

    def wait(self, *, within: float) -> Chat:
        """Its end; a request without one hangs, which raises `TimeoutError`."""
        if not self._ended.wait(within):
            raise TimeoutError(f"a request hangs: no end within {within:g} s: {self.chat}")
        self._thread.join(within)
        return self.chat

    def hang_up(self) -> None:
        """Close the connection in the middle of whatever it does."""
        self._hung_up = True
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it may have ended by itself just now
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(self._within)

    def _run(self) -> None:
        chat = self.chat
        try:
            with (
                client_of(self._base_url, within=self._within, headers=self._headers) as client,
                client.stream(
                    "POST", "/v1/chat/completions", json=self.body, extensions={"trace": self._trace}
                ) as answer,
            ):
                _head(chat, answer)
                if answer.status_code == 200 and self.body.get("stream"):
                    self._events(answer)
                else:
                    answer.read()
                    _whole(chat, answer)
        except (httpx2.HTTPError, httpx2.StreamError) as wrong:
            chat.why = chat.why or f"{type(wrong).__name__}: {wrong}"
        except (ValueError, LookupError, TypeError) as wrong:
            chat.result, chat.error = Result.ERROR, "malformed"
            chat.why = f"{type(wrong).__name__}: {wrong}"
        finally:
            if chat.result is None:
                chat.result = Result.CUT
                chat.why = (
                    "hung up" if self._hung_up else chat.why or "the answer ended before its last event"
                )
            self._spoke.set()
            self._ended.set()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self._socket = info["return_value"].get_extra_info("socket")

    def _events(self, answer: httpx2.Response) -> None:
        chat = self.chat
        for line in answer.iter_lines():
            if not line.startswith("data:"):
                continue
            data = line.removeprefix("data:").strip()
            if data != "[DONE]":
                self._event(json.loads(data))
            elif chat.result is None and chat.finish_reason:
                chat.result = Result.COMPLETE

    def _event(self, value: Any) -> None:
        chat = self.chat
        if "error" in value:
            _named_error(chat, value)
            return
        for choice in value.get("choices", ()):
            piece = choice.get("delta", {}).get("content") or ""
            if piece and len(chat.text) < _TEXT_LIMIT:
                chat.text += piece
                chat.pieces += 1
                self._spoke.set()
            chat.finish_reason = choice.get("finish_reason") or chat.finish_reason
        chat.usage = value.get("usage") or chat.usage


def _head(chat: Chat, answer: httpx2.Response) -> None:
    chat.status = answer.status_code
    chat.node = answer.headers.get(_NODE_HEADER, "")
    chat.route = answer.headers.get(_ROUTE_HEADER, "")


def _whole(chat: Chat, answer: httpx2.Response) -> None:
    try:
        value = answer.json()
    except ValueError:
        chat.result, chat.error, chat.why = Result.ERROR, f"http-{answer.status_code}", answer.text[:500]
        return
    if answer.status_code != 200:
        _named_error(chat, value, fallback=f"http-{answer.status_code}")
        return
    choice = value["choices"][0]
    chat.text = str(choice["message"]["content"])
    chat.finish_reason = str(choice["finish_reason"])
    chat.usage = value.get("usage") or {}
    chat.pieces = 1
    chat.result = Result.COMPLETE


def _named_error(chat: Chat, value: Any, *, fallback: str = "unnamed") -> None:
    chat.result = Result.ERROR
    chat.error = error_code(value) or fallback
    chat.why = error_message(value)
