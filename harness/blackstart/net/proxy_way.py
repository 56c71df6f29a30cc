"""The bytes from one side of a pair to the other, handed on when their line says so: the shell around `core.line`.

An end of file and the end of a connection travel like a byte: behind everything that was sent before them, and as slowly.
While the line is clear and nothing is under way, bytes go straight through.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from blackstart.core.line import NS

if TYPE_CHECKING:
    from blackstart.core.line import Line
    from blackstart.net.proxy_pipe import Side


_LEAST_KERNEL = 64 * 1024
_MOST_KERNEL = 4 * 1024 * 1024


class Mark(Enum):
    """What a way carries besides bytes; each takes one byte's place on the line."""

    END = "end"  # no more bytes: the other direction goes on
    CLOSE = "close"  # the connection is over
    RESET = "reset"  # the connection was torn


class Way:
    """From `source` to `target`. Either may be gone before the last of it has arrived."""

    def __init__(self, line: Line, source: Side, target: Side) -> None:
        self._line = line
        self._lane = line.lane()
        self._source = source
        self._target = target
        self._queue: deque[memoryview | Mark] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._blocked = False
        self._held = False
        self._over = False
        self._fitted = False
        self.fit()

    def fit(self) -> None:
        """Let the kernel hold little of what waits in front of a rate, or the sender would not feel that it waits."""
        transport = self._source.transport
        paced = self._line.shape.bytes_per_s is not None
        if transport is None or transport.is_closing() or paced is self._fitted:
            return
        size = max(_LEAST_KERNEL, self._line.shape.queue_bytes) if paced else _MOST_KERNEL
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
        self._fitted = paced

    @property
    def full(self) -> bool:
        """Whether the source should not be read now."""
        if self._blocked and self._line.shape.is_clear:
            return True
        return self._lane.full(time.monotonic_ns())

    @property
    def direct(self) -> bool:
        """Whether what comes now may go straight through."""
        return not self._queue and self._line.shape.is_clear and not self._held

    def put(self, data: bytes) -> None:
        """Bytes for the target."""
        transport = self._target.transport
        if self._over or transport is None:
            return
        if self.direct and not self._blocked:
            self._line.passed += len(data)
            transport.write(data)
            return
        self._admit(memoryview(data), len(data))

    def mark(self, mark: Mark) -> None:
        """The source has ended, or is gone; told to the target behind all bytes."""
        if self._over:
            return
        if self.direct:
            self._tell(mark)
        else:
            self._admit(mark, 1)

    def block(self) -> None:
        """The target takes no more for now."""
        self._blocked = True
        self._source.steer()
        self._arm()

    def unblock(self) -> None:
        """The target takes more again."""
        self._blocked = False
        self.look()

    def hold(self) -> None:
        """Hand on nothing until `release`."""
        self._held = True
        self._arm()

    def release(self) -> None:
        """The end of `hold`; what was due meanwhile goes at once."""
        self._held = False
        self.look()

    def drop(self) -> None:
        """Nobody is there to receive it: forget what is under way."""
        self._over = True
        self._queue.clear()
        self._lane.close()
        self._arm()

    def look(self) -> None:
        """Hand on what is due, read or do not read the source, and say when to look again."""
        transport = self._target.transport
        if self._over:
            return
        if transport is None or transport.is_closing():
            self.drop()
            return
        if not self._held:
            self._hand_on(transport)
        self._source.steer()
        self._arm()

    def _admit(self, item: memoryview | Mark, length: int) -> None:
        self._queue.append(item)
        self._lane.admit(length, time.monotonic_ns())
        self.look()

    def _hand_on(self, transport: asyncio.Transport) -> None:
        due = self._lane.due(time.monotonic_ns())
        while due and self._queue and not self._blocked:
            item = self._queue.popleft()
            if isinstance(item, Mark):
                due -= 1
                self._lane.passed(1)
                self._tell(item)
                continue
            piece = item[:due]
            if len(item) > due:
                self._queue.appendleft(item[due:])
            due -= len(piece)
            self._lane.passed(len(piece))
            self._line.passed += len(piece)
            transport.write(piece)

    def _tell(self, mark: Mark) -> None:
        if mark is Mark.END:
            self._source.arrived_end(self._target)
        else:
            self._target.finish(torn=mark is Mark.RESET)
            self.drop()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._over or self._held:
            return
        at_ns = self._lane.wake_ns(time.monotonic_ns(), blocked=self._blocked)
        if at_ns is not None:
            self._timer = asyncio.get_running_loop().call_at(at_ns / NS, self.look)
