"""What a stream that was reset here may still bring: its peer had credit for so much when it heard of that."""

from __future__ import annotations

from collections import OrderedDict


class Lingering:
    """So many streams are told apart from those that are long over; the oldest are forgotten first."""

    def __init__(self, *, remembered: int) -> None:
        """`remembered` bounds how many."""
        self._credit: OrderedDict[int, int] = OrderedDict()
        self._remembered = remembered

    def begin(self, stream: int, credit: int) -> None:
        """The stream was reset while its peer had this much credit."""
        self._credit[stream] = credit
        if len(self._credit) > self._remembered:
            self._credit.popitem(last=False)

    def end(self, stream: int) -> None:
        """The peer has said its last on it."""
        self._credit.pop(stream, None)

    def credit(self, stream: int) -> int | None:
        """What it may still bring; None when it does not linger."""
        return self._credit.get(stream)

    def brought(self, stream: int, length: int) -> None:
        """So much of that came, and goes nowhere."""
        if stream in self._credit:
            self._credit[stream] -= length
