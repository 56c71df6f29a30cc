"""What the core tells its shell after it was told a header or a length."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Opened:
    """The peer opened this stream; answer with `accept` or `reset`."""

    stream: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The peer tried to open this stream past a limit (or after go-away); a reset is on its way to it."""

    stream: int
    why: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The peer accepted the stream we opened."""

    stream: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The peer will send no more on this stream; all its data came before this."""

    stream: int


@dataclass(frozen=True, slots=True)
class Reset:
    """The peer reset this stream; it is gone in both directions. `refused`: a stream of ours it never acknowledged."""

    stream: int
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Credited:
    """The peer gave this stream more to send."""

    stream: int


@dataclass(frozen=True, slots=True)
class PingAnswered:
    """Our ping came back."""

    round_trip_s: float


@dataclass(frozen=True, slots=True)
class GoneAway:
    """The peer takes no new streams; code 0 lets running ones finish, 1 and 2 end the session."""

    code: int


Event: TypeAlias = Opened | Refused | Acknowledged | Finished | Reset | Credited | PingAnswered | GoneAway


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The next thing to send: these header bytes, then `length` bytes of `stream`'s payload."""

    header: bytes
    stream: int = 0
    length: int = 0
    final: bool = False
