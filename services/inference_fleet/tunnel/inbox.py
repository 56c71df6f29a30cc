"""What a stream received and its reader has not taken yet, in memory that follows its bytes and not its pieces."""

from __future__ import annotations

from collections import deque
from typing import Final

_SMALL: Final = 4096


class Inbox:
    """Small pieces are put together: kept one by one, a window of two-byte frames would cost thirty windows."""

    __slots__ = ("_pieces", "length")

    def __init__(self) -> None:
        # none while nothing lies in it: an empty deque is the largest part of an idle stream
        self._pieces: deque[bytes | bytearray] | None = None
        self.length = 0

    def __bool__(self) -> bool:
        """Whether anything lies in it."""
        return self._pieces is not None

    def keep(self, data: bytes | memoryview) -> None:
        """Copied, unless it is `bytes` and large."""
        self.length += len(data)
        pieces = self._pieces = self._pieces or deque()
        last = pieces[-1] if pieces else None
        if isinstance(last, bytearray) and len(last) + len(data) <= _SMALL:
            last += data
        elif len(data) < _SMALL:
            pieces.append(bytearray(data))
        else:
            pieces.append(bytes(data))

    def first(self) -> bytes:
        """Take the oldest piece out."""
        assert self._pieces, "asked only while something lies in it"
        piece = bytes(self._pieces.popleft())
        self.length -= len(piece)
        self._pieces = self._pieces or None
        return piece

    def take(self, length: int) -> bytes:
        """Take exactly so much out, all of which is there."""
        taken = bytearray()
        while len(taken) < length:
            piece = self.first()
            room = length - len(taken)
            if len(piece) > room:
                self._pieces = self._pieces or deque()
                self._pieces.appendleft(piece[room:])
                self.length += len(piece) - room
            taken += piece[:room]
        return bytes(taken)

    def clear(self) -> None:
        """Forget it all."""
        self._pieces = None
        self.length = 0
