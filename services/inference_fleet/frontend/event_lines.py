"""An event stream passed on line by line, so that a break is told in whole lines and an end is known to be one."""

from __future__ import annotations

_DONE = b"data: [DONE]"
_LONGEST_TAIL = 64 * 1024


class EventLines:
    """Holds back an unfinished line, which no reader could use yet, and watches for the end mark.

    A stream without `data: [DONE]` has not ended well, however its connection did.
    """

    def __init__(self) -> None:
        self._tail = b""
        self.done = False

    def feed(self, chunk: bytes) -> bytes:
        """What may go on now; a line past 64 KiB goes as it comes."""
        data = self._tail + chunk
        end = data.rfind(b"\n") + 1
        if not end and len(data) <= _LONGEST_TAIL:
            self._tail = data
            return b""
        if len(data) - end > _LONGEST_TAIL:
            end = len(data)
        self._tail = data[end:]
        whole = data[:end]
        if _DONE in whole:
            self.done = self.done or any(line.strip() == _DONE for line in whole.split(b"\n"))
        return whole

    def rest(self) -> bytes:
        """The last line of a stream that ended, should it lack its newline."""
        tail, self._tail = self._tail, b""
        self.done = self.done or tail.strip() == _DONE
        return tail


def error_event(body: bytes) -> bytes:
    """An error as an event; the blank line before it ends whatever event was under way."""
    return b"\n\ndata: " + body + b"\n\n"
