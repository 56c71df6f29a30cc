"""yamux version 0 on the wire: the 12-byte header, its fields, and the name of every way to break it."""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Final, NamedTuple

HEADER_BYTES: Final = 12
INITIAL_WINDOW: Final = 256 * 1024
LARGEST_U32: Final = 2**32 - 1

DATA: Final = 0
WINDOW: Final = 1
PING: Final = 2
GO_AWAY: Final = 3

SYN: Final = 1
ACK: Final = 2
FIN: Final = 4
RST: Final = 8
_KNOWN_FLAGS: Final = SYN | ACK | FIN | RST

GO_AWAY_NORMAL: Final = 0
GO_AWAY_PROTOCOL: Final = 1
GO_AWAY_INTERNAL: Final = 2
GO_AWAY_MEANING: Final = {
    GO_AWAY_NORMAL: "normal termination",
    GO_AWAY_PROTOCOL: "protocol error",
    GO_AWAY_INTERNAL: "internal error",
}

_HEADER = struct.Struct(">BBHII")


class Breach(StrEnum):
    """Every way a peer can break the protocol or a limit that ends the whole session, by name."""

    VERSION = "version"
    FRAME_TYPE = "frame-type"
    FLAGS = "flags"
    STREAM_ID = "stream-id"
    ID_PARITY = "id-parity"
    ID_REUSE = "id-reuse"
    UNKNOWN_STREAM = "unknown-stream"
    ACK_OF_OWN_STREAM = "ack-of-own-stream"
    WINDOW_EXCEEDED = "window-exceeded"
    WINDOW_OVERFLOW = "window-overflow"
    DATA_AFTER_FIN = "data-after-fin"
    RESET_LENGTH = "reset-length"
    GO_AWAY_CODE = "go-away-code"
    RESET_FLOOD = "reset-flood"
    PING_FLOOD = "ping-flood"
    EMPTY_FLOOD = "empty-flood"
    CONTROL_BACKLOG = "control-backlog"


class ProtocolError(Exception):
    """The peer broke the protocol; the session ends with go-away code 1."""

    def __init__(self, breach: Breach, text: str) -> None:
        """`text` carries the offending values."""
        self.breach = breach
        super().__init__(f"{breach}: {text}")


class Header(NamedTuple):
    """One header, checked as far as it can be without knowing any stream."""

    type: int
    flags: int
    stream: int
    length: int


def pack(kind: int, flags: int, stream: int, length: int) -> bytes:
    """The 12 bytes of a header."""
    return _HEADER.pack(0, kind, flags, stream, length)


def unpack(raw: bytes | bytearray | memoryview) -> Header:
    """Read a header and refuse what no state of any stream could make legal."""
    version, kind, flags, stream, length = _HEADER.unpack(raw)
    if version != 0:
        raise ProtocolError(Breach.VERSION, f"version {version}, spoken here is 0")
    if flags & ~_KNOWN_FLAGS:
        raise ProtocolError(Breach.FLAGS, f"unknown bits in flags {flags:#06x}")
    if kind <= WINDOW:
        _check_stream_frame(kind, flags, stream, length)
    elif kind <= GO_AWAY:
        _check_session_frame(kind, flags, stream, length)
    else:
        raise ProtocolError(Breach.FRAME_TYPE, f"frame type {kind}; known are 0 to 3")
    return Header(kind, flags, stream, length)


def _check_session_frame(kind: int, flags: int, stream: int, length: int) -> None:
    if stream:
        raise ProtocolError(
            Breach.STREAM_ID, f"a ping or go-away on stream {stream}; both belong to stream 0"
        )
    if kind == PING and flags not in {SYN, ACK}:
        raise ProtocolError(Breach.FLAGS, f"a ping is SYN or ACK, not {flags:#06x}")
    if kind == GO_AWAY and flags:
        raise ProtocolError(Breach.FLAGS, f"a go-away carries no flags, not {flags:#06x}")
    if kind == GO_AWAY and length not in GO_AWAY_MEANING:
        raise ProtocolError(Breach.GO_AWAY_CODE, f"go-away code {length}; known are 0, 1 and 2")


def _check_stream_frame(kind: int, flags: int, stream: int, length: int) -> None:
    if not stream:
        raise ProtocolError(Breach.STREAM_ID, "stream 0 is the session; it carries no data and no window")
    if flags & SYN and flags & (ACK | RST):
        raise ProtocolError(Breach.FLAGS, f"SYN together with ACK or RST: {flags:#06x}")
    if flags & RST and flags & FIN:
        raise ProtocolError(Breach.FLAGS, f"RST together with FIN: {flags:#06x}")
    if flags & RST and length:
        what = "bytes of data" if kind == DATA else "bytes of window"
        raise ProtocolError(Breach.RESET_LENGTH, f"a reset of stream {stream} with {length} {what}")
