"""One JSON object a line on stderr: any collector reads it, ids come from the context, secrets never get out.

| key                                        | meaning                                                       |
|--------------------------------------------|---------------------------------------------------------------|
| `time`                                     | RFC 3339 in UTC, microseconds                                 |
| `level`, `logger`, `message`               | as everywhere                                                 |
| `instance`                                 | which process speaks                                          |
| `node`, `epoch`, `trace`, `span`           | what it speaks about, bound with `bound(...)` around the work |
| `error`                                    | the traceback of a logged exception                           |
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_HIDDEN = "***"
_LONGEST_LINE = 16_384
_SHORTEST_SECRET = 6
_ids: ContextVar[Mapping[str, str | int]] = ContextVar("blackstart_log_ids", default=MappingProxyType({}))

_PATTERNS = (
    re.compile(r"(?i)(\bbearer\s+)[^\s\"',;]+"),
    re.compile(
        r"(?i)(\b(?:session|password|passwd|secret|token|api_?key|credential)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;&]+"
    ),
    re.compile(r"(\b[a-z][a-z0-9+.-]*://[^\s/@:]*:)[^\s/@]+(?=@)"),
)


@contextlib.contextmanager
def bound(**ids: str | int) -> Iterator[None]:
    """Every line logged inside, in this task and those it starts, carries these ids."""
    token = _ids.set({**_ids.get(), **ids})
    try:
        yield
    finally:
        _ids.reset(token)


def current_ids() -> Mapping[str, str | int]:
    """The ids the current task logs with."""
    return _ids.get()


class Redactor:
    """Takes secrets out of text: those it was told, and whatever stands where a secret usually stands."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = sorted({s for s in secrets if len(s) >= _SHORTEST_SECRET}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(self, text: str) -> str:
        """The text with every secret as `***`."""
        if self._known is not None:
            text = self._known.sub(_HIDDEN, text)
        for pattern in _PATTERNS:
            text = pattern.sub(rf"\g<1>{_HIDDEN}", text)
        return text


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON; a record that cannot be formatted is still a line, which says so."""

    def __init__(self, *, instance: str, redact: Redactor) -> None:
        super().__init__()
        self._instance = instance
        self._redact = redact
        self._encode = msgspec.json.Encoder().encode

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its newline."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError) as error:
            message = f"{record.msg!r} with arguments that do not fit: {error}"
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": self._redact(message)[:_LONGEST_LINE],
            "instance": self._instance,
            **current_ids(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = self._redact(self.formatException(record.exc_info))[-_LONGEST_LINE:]
        return self._encode(line).decode()


def configure_logs(
    *, instance: str, secrets: Iterable[str] = (), level: int = logging.INFO, stream: TextIO | None = None
) -> logging.Handler:
    """Make the root logger write JSON lines to stderr, and nothing else write anywhere.

    Returns the handler, so that whoever configured logs for a while can take it away again.
    """
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter(instance=instance, redact=Redactor(secrets)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for chatty in ("uvicorn.access", "httpx2", "httpcore2", "asyncio"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    return handler
