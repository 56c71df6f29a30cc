"""The journal's events as facts: one versioned line each, bounded in size, merged by the host's boot clock.

| field         | type          | meaning                                                              |
|---------------|---------------|----------------------------------------------------------------------|
| `v`           | int           | schema version, `VERSION`; a newer one is refused by name            |
| `seq`         | int           | counts from 1 within one writing process                             |
| `boot_ns`     | int           | CLOCK_BOOTTIME in nanoseconds: one order for all processes of a host |
| `wall`        | float         | seconds since the epoch, for people; never compared                  |
| `kind`        | `Kind`        | what happened                                                        |
| `spec`        | str, optional | the spec, `drill` or `up` it belongs to                              |
| `node`        | str, optional | the node it is about                                                 |
| `incarnation` | int, optional | which start of that node, from 1                                     |
| `data`        | object        | what else is known, redacted and clipped                             |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1
LINE_LIMIT = 64 * 1024
_TEXT_LIMIT = 8 * 1024
_ITEMS_LIMIT = 256
_DEPTH_LIMIT = 6
_LARGEST_INT = 2**63


class Kind(StrEnum):
    """The closed vocabulary of events."""

    RUN_START = "run-start"
    SPAWN = "spawn"
    READY = "ready"
    SIGNAL = "signal"
    EXIT = "exit"
    FAULT = "fault"
    WAIT = "wait"
    VERDICT = "verdict"
    RUN_END = "run-end"
    MARK = "mark"
    LEASE = "lease"
    HARNESS_FAILURE = "harness-failure"


class JournalError(ValueError):
    """A line that is not an event of this schema; the text says what it is instead."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of the journal."""

    v: int = VERSION
    seq: int
    boot_ns: int
    wall: float
    kind: Kind
    spec: str | None = None
    node: str | None = None
    incarnation: int | None = None
    data: dict[str, Any] = field(default_factory=dict)


def encode(event: Event) -> bytes:
    """One line with its newline, never longer than `LINE_LIMIT`: what does not fit is cut and says so."""
    for text_limit in (_TEXT_LIMIT, _TEXT_LIMIT // 16, _TEXT_LIMIT // 256):
        line = _line(event, clip(event.data, text_limit=text_limit))
        if len(line) <= LINE_LIMIT:
            return line
    return _line(event, {"clipped": f"data of {len(event.data)} fields did not fit {LINE_LIMIT} bytes"})


def decode(line: bytes) -> Event:
    """The event of one line (with or without its newline); `JournalError` for anything else."""
    if len(line) > LINE_LIMIT:
        raise JournalError(f"a line of {len(line)} bytes: longer than the {LINE_LIMIT} a writer may write")
    try:
        event = _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError) as wrong:
        if (newer := _newer_version(line)) is not None:
            raise JournalError(
                f"schema version {newer}: this release reads up to {VERSION}; try: the release that wrote it"
            ) from wrong
        raise JournalError(f"not an event ({wrong}): {line[:80]!r}") from wrong
    if event.v != VERSION:
        raise JournalError(
            f"schema version {event.v}: this release reads {VERSION}; try: the release that wrote it"
        )
    if event.seq < 1 or event.boot_ns < 0:
        raise JournalError(f"seq={event.seq} boot_ns={event.boot_ns}: a sequence counts from 1, time from 0")
    return event


def merge(events: Iterable[tuple[str, Event]]) -> list[Event]:
    """Events of several writers in one order: boot clock first, then writer and sequence, so ties are stable."""
    return [event for _, event in sorted(events, key=lambda pair: (pair[1].boot_ns, pair[0], pair[1].seq))]


def clip(value: Any, *, text_limit: int = _TEXT_LIMIT, depth: int = _DEPTH_LIMIT) -> Any:
    """The value as JSON can hold it, with long texts, long lists and deep nesting cut and saying so."""
    if value is None or isinstance(value, bool | int | float):
        return _number(value)
    if isinstance(value, bytes):
        return _text(value.decode(errors="backslashreplace"), text_limit)
    if isinstance(value, str) or depth == 0:
        return _text(str(value), text_limit)
    if isinstance(value, Mapping):
        return _mapping(value, text_limit, depth)
    if isinstance(value, Sequence | set | frozenset):
        items = list(value)
        kept = [clip(item, text_limit=text_limit, depth=depth - 1) for item in items[:_ITEMS_LIMIT]]
        return kept if len(items) <= _ITEMS_LIMIT else [*kept, f"... {len(items) - _ITEMS_LIMIT} more"]
    return _text(str(value), text_limit)


def _mapping(value: Mapping[Any, Any], text_limit: int, depth: int) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for number, (key, item) in enumerate(value.items()):
        if number == _ITEMS_LIMIT:
            kept["..."] = f"{len(value) - _ITEMS_LIMIT} more"
            break
        kept[_text(str(key), text_limit)] = clip(item, text_limit=text_limit, depth=depth - 1)
    return kept


def _number(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no such number
    if isinstance(value, int) and abs(value) >= _LARGEST_INT:
        return str(value)
    return value


def _text(value: str, limit: int) -> str:
    readable = value.encode(errors="backslashreplace").decode()  # lone surrogates are not JSON
    return readable if len(readable) <= limit else f"{readable[:limit]} ... {len(readable) - limit} more"


def _line(event: Event, data: dict[str, Any]) -> bytes:
    fields: dict[str, Any] = {
        "v": event.v,
        "seq": event.seq,
        "boot_ns": event.boot_ns,
        "wall": event.wall,
        "kind": event.kind,
    }
    for name in ("spec", "node"):
        if (value := getattr(event, name)) is not None:
            fields[name] = _text(value, 1024)
    if event.incarnation is not None:
        fields["incarnation"] = event.incarnation
    return msgspec.json.encode({**fields, "data": data}) + b"\n"


def _newer_version(line: bytes) -> int | None:
    try:
        version = _VERSION_DECODER.decode(line).v
    except (msgspec.DecodeError, RecursionError):
        return None
    return version if version > VERSION else None


class _Versioned(msgspec.Struct):
    v: int


_DECODER = msgspec.json.Decoder(Event)
_VERSION_DECODER = msgspec.json.Decoder(_Versioned)
