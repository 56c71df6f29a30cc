"""W3C trace context, so one request can be followed across client, replica, peer and worker."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, replace
from typing import Self

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


@dataclass(frozen=True)
class TraceContext:
    """One hop's place in a trace: 32 hex digits of trace, 16 of span, and the sampling flags."""

    trace_id: str
    span_id: str
    flags: int = 1

    @classmethod
    def new(cls) -> Self:
        """A trace that begins here."""
        return cls(secrets.token_hex(16), secrets.token_hex(8))

    @classmethod
    def parse(cls, header: str | None) -> Self | None:
        """A `traceparent` header, or None when it is absent or breaks the specification.

        A broken header starts a new trace at the caller's hand; it never fails a request. Version `ff` and
        all-zero ids are invalid; a version above 00 may carry more fields behind the flags, version 00 may not.
        """
        match = _TRACEPARENT.fullmatch(header.strip()) if header and len(header) <= 512 else None
        if match is None:
            return None
        version, trace_id, span_id, flags, more = match.groups()
        if version == "ff" or (version == "00" and more):
            return None
        if not int(trace_id, 16) or not int(span_id, 16):
            return None
        return cls(trace_id, span_id, int(flags, 16) & 1)

    @classmethod
    def continued(cls, header: str | None) -> Self:
        """This hop's own span in the caller's trace, or in a new one when the caller named none."""
        parsed = cls.parse(header)
        return cls.new() if parsed is None else parsed.child()

    def child(self) -> Self:
        """The next hop's span in the same trace."""
        return replace(self, span_id=secrets.token_hex(8))

    @property
    def traceparent(self) -> str:
        """What the next hop is sent."""
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"


def trace_ids(traceparent: str | None) -> dict[str, str]:
    """What log lines about a request carry of the trace it came with; one that breaks the specification is ignored."""
    came = TraceContext.parse(traceparent)
    return {} if came is None else {"trace": came.trace_id, "span": came.span_id}
