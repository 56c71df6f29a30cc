"""The head of one HTTP request, read strictly and rewritten little: all a balancer has to understand of HTTP.

Pure: bytes in, a `RequestHead` or a named refusal out. Bodies, answers and WebSocket frames are never looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

LARGEST_HEAD = 32 * 1024
_END = b"\r\n\r\n"
_LINE_BREAK = b"\r\n"
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,31}) (\S{1,8192}) (HTTP/1\.[01])")
_FIELD_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HOP_FIELDS = {b"connection", b"keep-alive", b"proxy-connection"}
_FORWARDED_FOR = b"x-forwarded-for"


class BadHead(Exception):
    """A head that is not passed on: `status` is what the client is told, the text says what was wrong."""

    def __init__(self, status: int, reason: str) -> None:
        """`reason` goes to the client and into the balancer's records."""
        self.status = status
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True)
class RequestHead:
    """Method, target and fields as they came, in order."""

    method: str
    target: str
    version: str
    fields: tuple[tuple[bytes, bytes], ...]

    @property
    def path(self) -> str:
        """The target without its query, and without scheme and host where it came in absolute form."""
        if self.target.startswith("/"):
            return self.target.partition("?")[0]
        try:
            return urlsplit(self.target).path or "/"
        except ValueError:
            return self.target

    @property
    def upgrade(self) -> bool:
        """Whether the connection is to become something else (a WebSocket), so that it must stay as it is."""
        names = {name.lower() for name, _ in self.fields}
        return b"upgrade" in names and b"upgrade" in self._connection_words()

    def rewritten(self, *, client: str) -> bytes:
        """The head for the backend: the client's address added, and one request a connection.

        Without the second a kept connection would carry later requests past every rule.
        """
        lines = [f"{self.method} {self.target} {self.version}".encode("latin-1")]
        forwarded = [value for name, value in self.fields if name.lower() == _FORWARDED_FOR]
        lines += [
            name + b": " + value
            for name, value in self.fields
            if name.lower() != _FORWARDED_FOR and (self.upgrade or name.lower() not in _HOP_FIELDS)
        ]
        lines.append(b"X-Forwarded-For: " + b", ".join([*forwarded, client.encode("ascii")]))
        if not self.upgrade:
            lines.append(b"Connection: close")
        return _LINE_BREAK.join(lines) + _END

    def _connection_words(self) -> set[bytes]:
        values = [value for name, value in self.fields if name.lower() == b"connection"]
        return {word.strip().lower() for value in values for word in value.split(b",")}


def split_head(data: bytes | bytearray) -> tuple[bytes, bytes] | None:
    """`(head, rest)` once the empty line is there; `None` while more must come; `BadHead` past the bound."""
    end = data.find(_END, 0, LARGEST_HEAD)
    if end < 0:
        if len(data) >= LARGEST_HEAD:
            raise BadHead(431, f"the request's head is larger than {LARGEST_HEAD} bytes")
        return None
    return bytes(data[:end]), bytes(data[end + len(_END) :])


def parse_head(head: bytes) -> RequestHead:
    """A whole head without its empty line. Anything loose is `BadHead`: two readers could take it differently."""
    first, *rest = head.split(_LINE_BREAK)
    matched = _REQUEST_LINE.fullmatch(first)
    if matched is None:
        raise BadHead(400, f"the request line is not HTTP/1: {first[:80]!r}")
    fields: list[tuple[bytes, bytes]] = []
    for line in rest:
        name, colon, value = line.partition(b":")
        if not colon or not _FIELD_NAME.fullmatch(name):
            raise BadHead(400, f"a header line has no name: {line[:80]!r}")
        if any(byte in value for byte in (0x00, 0x0A, 0x0D)):
            raise BadHead(400, f"a control character in the header {name.decode('ascii')}")
        fields.append((name, value.strip(b" \t")))
    method, target, version = (part.decode("latin-1") for part in matched.groups())
    return RequestHead(method, target, version, tuple(fields))
