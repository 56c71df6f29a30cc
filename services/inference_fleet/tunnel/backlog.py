"""What may wait to be sent on one session: a share for each stream that no other can take, and room all have in common.

Without shares, streams whose readers have stopped would fill the room together, and the next small answer to whoever does
read would find none.
"""

from __future__ import annotations


class Backlog:
    """Counts what waits. The common room is used by what a stream has waiting past its share."""

    __slots__ = ("_common", "_share", "_used", "waiting")

    def __init__(self, *, share: int, common: int) -> None:
        """Bytes for each stream of its own, and for all together past that."""
        self._share = share
        self._common = common
        self._used = 0
        self.waiting = 0

    def room(self, waiting: int) -> int:
        """How much a stream may add that has so much waiting."""
        return max(self._share - waiting, 0) + self._common - self._used

    def add(self, length: int, *, waiting: int) -> None:
        """A stream has `length` bytes more, which makes it `waiting`."""
        self.waiting += length
        self._used += self._past(length, waiting)

    def remove(self, length: int, *, waiting: int) -> None:
        """Of a stream's `waiting` bytes `length` are sent, or will never be."""
        self.waiting -= length
        self._used -= self._past(length, waiting)

    def _past(self, length: int, waiting: int) -> int:
        """How many of the last `length` bytes of `waiting` lie past the share."""
        return min(max(waiting - self._share, 0), length)
