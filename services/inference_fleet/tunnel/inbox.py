"""What a stream received and its reader has not taken yet, in memory that follows its bytes and not its pieces."""

from __future__ import annotations

from collections import deque
from typing import Final

_SMALL: Final = 4096


class Inbox:
    """Small pieces are put together: kept one by one, a window of two-byte frames would cost thirty windows."""

    __slots__ = ("_pieces", "length")

    def __init__(self) -> None:
        self._pieces: deque[bytes | bytearray] = deque()
        self.length = 0

    def __bool__(self) -> bool:
        """Whether anything lies in it."""
        return bool(self._pieces)

    def keep(self, data: bytes | memoryview) -> None:
        """Copied, unless it is `bytes` and large."""
        self.length += len(data)
        last = self._pieces[-1] if self._pieces else None
        if isinstance(last, bytearray) and len(last) + len(data) <= _SMALL:
            last += data
        elif len(data) < _SMALL:
            self._pieces.append(bytearray(data))
        else:
            self._pieces.append(bytes(data))

    def first(self) -> bytes:
        """Take the oldest piece out."""
        piece = bytes(self._pieces.popleft())
        self.length -= len(piece)
        return piece

    def take(self, length: int) -> bytes:
        """Take exactly so much out, all of which is there."""
        taken = bytearray()
        while len(taken) < length:
            piece = self.first()
            room = length - len(taken)
            if len(piece) > room:
                self._pieces.appendleft(piece[room:])
                self.length += len(piece) - room
            taken += piece[:room]
        return bytes(taken)

    def clear(self) -> None:
        """Forget it all."""
        self._pieces.clear()
        self.length = 0
