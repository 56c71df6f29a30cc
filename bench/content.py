"""What is sent: bytes that differ at every place, so that what came can be held against what was meant to come."""

from __future__ import annotations

import hashlib
import random
from functools import cache
from typing import Final

CHUNK: Final = 256 * 1024
"""The most that one `sendall` or `recv_into` of ours is given."""

_PERIOD: Final = 1_048_573  # a prime, so that no power of two ever lines up with itself
_SEED: Final = 20260
_SAMPLE: Final = 16


class Content:
    """An endless text, the same in every process: a random block again and again."""

    def __init__(self) -> None:
        block = random.Random(_SEED).randbytes(_PERIOD)  # noqa: S311 - everybody is to know it
        self._text = memoryview(block + block[:CHUNK])

    def at(self, offset: int, length: int) -> memoryview:
        """So many bytes, at most `CHUNK`, from a place on; not a copy."""
        assert 0 <= length <= CHUNK, length
        begin = offset % _PERIOD
        return self._text[begin : begin + length]

    def agrees(self, offset: int, piece: memoryview) -> bool:
        """Whether a piece is what belongs there, judged by its two ends: cheap enough for a clocked loop."""
        length = len(piece)
        ends = min(length, _SAMPLE)
        last = offset + length - ends
        return piece[:ends] == self.at(offset, ends) and piece[length - ends :] == self.at(last, ends)

    def digest(self, size: int) -> bytes:
        """SHA-256 of the first `size` bytes."""
        hashed = hashlib.sha256()
        for offset in range(0, size, CHUNK):
            hashed.update(self.at(offset, min(CHUNK, size - offset)))
        return hashed.digest()


@cache
def content() -> Content:
    """The one of this process."""
    return Content()
