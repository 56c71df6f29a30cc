"""WebSocket framing (RFC 6455) without I/O: bytes in, pieces of payload and control frames out, headers for what goes out.

Payload is neither copied nor unmasked here: a piece is a view with the key that opens it, so that whoever wants
the bytes opens each once, where they end up. Message boundaries mean nothing and are not told.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

try:
    from websockets.speedups import apply_mask
except ImportError:  # built without its optional C part
    from websockets.utils import apply_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTROL_BYTES: Final = 125
MESSAGE_BYTES: Final = 4 * 1024 * 1024
"""All fragments of a message together. Nothing here keeps a message; other carriers of the same peers do."""
IDLE_FRAMES: Final = 1024
"""Frames a second that bring no payload: pings, pongs, and data frames of nothing."""
_SHORT, _LONG = struct.Struct(">H"), struct.Struct(">Q")
_TWO_BYTES, _EIGHT_BYTES = 126, 127
_FIN, _RESERVED, _OPCODE, _MASKED, _LENGTH = 0x80, 0x70, 0x0F, 0x80, 0x7F


class Opcode(IntEnum):
    """The frames there are."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    """The codes this end closes with."""

    NORMAL = 1000
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    NO_STATUS = 1005
    POLICY = 1008
    TOO_BIG = 1009


class FramingError(Exception):
    """The peer broke the framing; `code` is what the connection is closed with."""

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Piece:
    """Some payload. `key` opens it (4 bytes, turned to where the piece begins); empty when it is plain."""

    data: memoryview
    key: bytes


@dataclass(frozen=True, slots=True)
class Ping:
    """To be answered with the same payload."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Pong:
    """An answer to a ping, or a sign of life nobody asked for."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Closed:
    """The peer's last frame."""

    code: int
    reason: str


Told: TypeAlias = Piece | Ping | Pong | Closed


class FrameReader:
    """One direction of one connection. `masked` is what the peer has to do: clients mask, servers do not."""

    def __init__(self, *, masked: bool) -> None:
        self._masked = masked
        self._head = bytearray()
        self._due = 0
        self._key = b""
        self._control: Opcode | None = None
        self._payload = bytearray()
        self._fragmented = False
        self._message = 0
        self._idle = 0

    def second_passed(self) -> None:
        """Whoever has a clock says so: what a peer may do so often a second begins anew."""
        self._idle = 0

    @property
    def due(self) -> int:
        """Payload of the frame under way that has not come yet."""
        return self._due

    def receive(self, data: memoryview) -> Iterator[Told]:
        """What these bytes bring, in order; pieces are views of `data`. Raises `FramingError`."""
        at, end = 0, len(data)
        while at < end:
            if not self._due:
                at = self._read_head(data, at)
                if self._control is not None and self._ends_here():
                    yield self._finish_control()
                continue
            piece = data[at : at + self._due]
            at += len(piece)
            self._due -= len(piece)
            if self._control is None:
                yield Piece(piece, self._key)
                self._key = turned(self._key, len(piece))
                continue
            self._payload += piece
            if self._ends_here():
                yield self._finish_control()

    def _read_head(self, data: memoryview, at: int) -> int:
        """Take what is missing of the header; on return it is whole when `_head` is empty."""
        head = self._head
        while missing := self._head_bytes() - len(head):
            taken = data[at : at + missing]
            if not taken:
                return at
            head += taken
            at += len(taken)
        self._begin(bytes(head))
        head.clear()
        return at

    def _ends_here(self) -> bool:
        return not self._due and not self._head

    def _head_bytes(self) -> int:
        if len(self._head) < 2:  # the two bytes every frame has
            return 2
        length = self._head[1] & _LENGTH
        extended = 2 if length == _TWO_BYTES else 8 if length == _EIGHT_BYTES else 0
        return 2 + extended + (4 if self._head[1] & _MASKED else 0)

    def _begin(self, head: bytes) -> None:
        if head[0] & _RESERVED:
            raise FramingError(CloseCode.PROTOCOL_ERROR, "a frame with reserved bits set")
        if bool(head[1] & _MASKED) is not self._masked:
            wanted = "masked" if self._masked else "unmasked"
            raise FramingError(CloseCode.PROTOCOL_ERROR, f"a frame that is not {wanted}")
        length = head[1] & _LENGTH
        if length == _TWO_BYTES:
            length = _SHORT.unpack_from(head, 2)[0]
        elif length == _EIGHT_BYTES:
            length = _LONG.unpack_from(head, 2)[0]
        self._key = head[-4:] if self._masked else b""
        self._due = length
        final = bool(head[0] & _FIN)
        try:
            opcode = Opcode(head[0] & _OPCODE)
        except ValueError:
            raise FramingError(
                CloseCode.PROTOCOL_ERROR, f"a frame of the unknown kind {head[0] & _OPCODE}"
            ) from None
        self._control = None
        if opcode >= Opcode.CLOSE:
            if length > CONTROL_BYTES or not final:
                raise FramingError(
                    CloseCode.PROTOCOL_ERROR, f"a {opcode.name} of {length} bytes, or one in fragments"
                )
            self._control = opcode
            self._count_idle()
        elif opcode is Opcode.TEXT:
            raise FramingError(CloseCode.UNSUPPORTED_DATA, "a text message")
        else:
            self._follow(opcode, length, final=final)

    def _follow(self, opcode: Opcode, length: int, *, final: bool) -> None:
        if (opcode is Opcode.CONTINUATION) is not self._fragmented:
            told = "nothing to continue" if opcode is Opcode.CONTINUATION else "a message inside another"
            raise FramingError(CloseCode.PROTOCOL_ERROR, told)
        self._message = length + (self._message if self._fragmented else 0)
        if self._message > MESSAGE_BYTES:
            raise FramingError(
                CloseCode.TOO_BIG, f"a message of {self._message} bytes or more; at most {MESSAGE_BYTES}"
            )
        self._fragmented = not final
        if not length:
            self._count_idle()

    def _count_idle(self) -> None:
        self._idle += 1
        if self._idle > IDLE_FRAMES:
            raise FramingError(
                CloseCode.POLICY, f"more than {IDLE_FRAMES} frames without payload in a second"
            )

    def _finish_control(self) -> Told:
        payload = opened(memoryview(self._payload), self._key)
        kind, self._control = self._control, None
        self._payload.clear()
        if kind is Opcode.PING:
            return Ping(payload)
        if kind is Opcode.PONG:
            return Pong(payload)
        if len(payload) == 1:
            raise FramingError(CloseCode.PROTOCOL_ERROR, "a CLOSE of one byte")
        if not payload:
            return Closed(CloseCode.NO_STATUS, "")
        return Closed(_SHORT.unpack_from(payload)[0], payload[2:].decode("utf-8", "replace"))


def frame_head(opcode: Opcode, length: int, key: bytes = b"") -> bytes:
    """The header of a whole frame of `length` bytes; `key` (4 bytes) for the side that masks."""
    masked = _MASKED if key else 0
    first = _FIN | opcode
    if length < _TWO_BYTES:
        return bytes((first, masked | length)) + key
    if length < 1 << 16:
        return bytes((first, masked | _TWO_BYTES)) + _SHORT.pack(length) + key
    return bytes((first, masked | _EIGHT_BYTES)) + _LONG.pack(length) + key


def close_payload(code: int, reason: str) -> bytes:
    """What a CLOSE carries; a reason too long for a control frame is cut at a character."""
    return _SHORT.pack(code) + reason.encode()[: CONTROL_BYTES - 2].decode("utf-8", "ignore").encode()


def opened(data: memoryview, key: bytes) -> bytes:
    """The bytes of a piece, owned by the caller; masking is its own inverse."""
    return apply_mask(data, key) if key else bytes(data)


def turned(key: bytes, by: int) -> bytes:
    """The key for what comes `by` bytes later in the same frame."""
    by &= 3
    return key[by:] + key[:by] if by else key
