"""Two transports joined: bytes, half-closes and ends pass in both directions until both are over."""

from __future__ import annotations

import asyncio
import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inference_fleet.tunnel.errors import SessionDead, StreamReset
from inference_fleet.tunnel.local import BUFFER, LocalTransport
from inference_fleet.tunnel.loopback import Parked
from inference_fleet.tunnel.passing import Passing
from inference_fleet.tunnel.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable

_LATE_SHARE: Final = 0.1
_LAST_WORDS_BYTES: Final = 64 * 1024


class SpliceStalled(ConnectionError):
    """One direction was over and the other made no progress: its receiver had stopped reading."""


@dataclass(frozen=True)
class Spliced:
    """What passed and how it ended. `error` is the failure that cut it; None after two orderly ends.

    `failed` is the side that failed, `left` or `right`.
    """

    to_right: int
    to_left: int
    error: BaseException | None = None
    failed: str = ""


async def splice(
    left: asyncio.Transport,
    right: asyncio.Transport,
    *,
    stall_s: float,
    count: Callable[[int], None] | None = None,
    heard: Callable[[], None] | None = None,
) -> Spliced:
    """Join two transports and own their end: both are closed when this returns, also when it is cancelled.

    An end of file passes on as a half-close and the other direction goes on. An error of the left side resets the
    right one at once; an error of the right side resets the left one after what the right had said, so neither
    waits for a peer that is gone and no early answer is lost. When one direction is over and the other is stuck
    because its receiver stopped reading, it is cut after `stall_s` without a byte moving. `count` is told of
    every chunk, `heard` that the right side said something. Slow receivers are waited for by not reading their sender, so nothing piles up here.
    """
    done: asyncio.Future[Spliced] = asyncio.get_running_loop().create_future()

    def settle(_: Joint, spliced: Spliced) -> None:
        if not done.done():
            done.set_result(spliced)

    joint = Joint(left, right, stall_s=stall_s, then=settle, count=count, heard=heard)
    try:
        return await done
    finally:
        joint.cut()


class Joint:
    """Both halves and what they have in common: the end. It lives by callbacks; an idle one costs no task.

    It is `splice` for who does not wait: `then` is told of the end, once, when both sides are closed or aborted.
    """

    __slots__ = (
        "_due", "_moved", "_timer", "_unflushed_bytes", "count", "error", "failed", "left", "loop", "over",
        "parting", "right", "stall_s", "then",
    )  # fmt: skip

    def __init__(
        self,
        left: asyncio.Transport,
        right: asyncio.Transport,
        *,
        stall_s: float,
        then: Callable[[Joint, Spliced], None] | None = None,
        count: Callable[[int], None] | None = None,
        heard: Callable[[], None] | None = None,
    ) -> None:
        """Joins them at once."""
        self.loop = asyncio.get_running_loop()
        self.then = then
        self.over = False
        self.count = count
        self.stall_s = stall_s
        self.error: BaseException | None = None
        self.failed = ""
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._moved = False
        self._unflushed_bytes = 1 << 62
        self.parting = False
        self.left = _Half(self, "left", left)
        self.right = _Half(self, "right", right, heard=heard)
        self.left.other, self.right.other = self.right, self.left
        for half in (self.left, self.right):
            half.take_over()

    def _tell(self) -> None:
        self.over = True
        self._disarm()  # a timer would keep both sides, and the session of the left one, for as long as it runs
        then, self.then = self.then, None
        if then is not None:
            left, right = self.left.passed, self.right.passed
            then(self, Spliced(to_right=left, to_left=right, error=self.error, failed=self.failed))

    def fail(self, half: _Half, error: BaseException) -> None:
        """The first failure names the whole; both sides end, the left one after what the right had said to it.

        A service may answer early and close while its request still comes: the write to it fails, and its answer
        has been read or lies in the kernel. A stream on the left sends it before the reset; of a socket there the
        kernel may drop what its peer has not taken. Nothing of a caller that failed is worth a service's time, so the
        right side is cut at once.
        """
        if self.error is None and not self.over:
            self.error, self.failed = error, half.name
        if half is self.right and half.lost and not self.parting:
            self._part()
        else:
            self.cut()

    def _part(self) -> None:
        """Wait until the left side has taken everything; `resume_writing` tells, which is set to come then."""
        left = self.left.transport
        if left.is_closing() or not left.get_write_buffer_size():
            self.cut()
            return
        self.parting = True
        self._disarm()
        left.pause_reading()
        left.set_write_buffer_limits(high=0)
        self._unflushed_bytes = left.get_write_buffer_size()
        self._arm(self._judge_parting)

    def _judge_parting(self) -> None:
        left = self.left.transport.get_write_buffer_size()
        if left < self._unflushed_bytes:
            self._unflushed_bytes = left
            self._arm(self._judge_parting)
        else:
            self.cut()

    def cut(self) -> None:
        """Abort whatever side has not ended by itself."""
        self._disarm()
        for half in (self.left, self.right):
            if not half.lost:
                half.transport.abort()
        self._tell()

    def moved(self) -> None:
        """A byte went on, or its receiver took some."""
        self._moved = True

    def watch(self) -> None:
        """Start judging progress as soon as one direction is over and the other is not."""
        if self.left.over and self.right.over and not self.parting:
            self._finish()
        elif self._timer is None and not self.parting:
            self._moved = False
            self._arm(self._judge)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, judge: Callable[[], None]) -> None:
        self._due = self.loop.time() + self.stall_s
        self._timer = self.loop.call_at(self._due, self._look, judge)

    def _look(self, judge: Callable[[], None]) -> None:
        """A loop that was stalled itself judges nobody by that time."""
        self._timer = None
        if self.loop.time() - self._due > self.stall_s * _LATE_SHARE:
            self._arm(judge)
        else:
            judge()

    def _judge(self) -> None:
        stuck = [half for half in (self.left, self.right) if not half.over and half.other.blocked]
        if stuck and not self._moved:
            self.fail(
                stuck[0].other,
                SpliceStalled(f"the {stuck[0].other.name} side read nothing for {self.stall_s:g} s"),
            )
        else:
            self.watch()

    def _finish(self) -> None:
        """Both ends of file are passed on: let both transports flush and close."""
        for half in (self.left, self.right):
            half.transport.close()
        self.check_lost()
        if self._timer is None and not self.over:
            self._arm(self._judge_flush)

    def _judge_flush(self) -> None:
        unflushed = [half for half in (self.left, self.right) if not half.lost]
        left = sum(half.transport.get_write_buffer_size() for half in unflushed)
        if unflushed and left and left < self._unflushed_bytes:
            self._unflushed_bytes = left
            self._arm(self._judge_flush)
        elif unflushed:
            self.fail(
                unflushed[0],
                SpliceStalled(f"the {unflushed[0].name} side read nothing for {self.stall_s:g} s"),
            )

    def check_lost(self) -> None:
        """It is over once both sides are."""
        if self.left.lost and self.right.lost:
            self._tell()


class _Half(Passing, asyncio.BufferedProtocol):
    """The protocol of one transport: what it reads, the other writes. All of them have one buffer to read into."""

    __slots__ = ("blocked", "heard", "joint", "keeps", "lost", "name", "other", "over", "passed", "transport")
    other: _Half

    def __init__(
        self,
        joint: Joint,
        name: str,
        transport: asyncio.Transport,
        *,
        heard: Callable[[], None] | None = None,
    ) -> None:
        self.joint = joint
        self.name = name
        self.transport = transport
        self.keeps = not isinstance(transport, Stream | LocalTransport)
        self.passed = 0
        self.over = False
        self.lost = False
        self.blocked = False
        self.heard = heard

    def take_over(self) -> None:
        parked = None if isinstance(self.transport, Stream) else self.transport.get_protocol()
        if isinstance(parked, Parked):
            parked.release(self)
        else:
            self.transport.set_protocol(self)
            self.transport.resume_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        into = self.other.transport
        return BUFFER[: max(into.room, 1)] if isinstance(into, Stream) else BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(BUFFER[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        self.passed += len(data)
        self.joint.moved()
        if self.joint.count is not None:
            self.joint.count(len(data))
        if self.heard is not None:
            self.heard()
        # asyncio's own transports keep a view of what they could not send, from Python 3.12 on
        self.other.transport.write(bytes(data) if self.other.keeps else data)

    def eof_received(self) -> bool:
        self.over = True
        if self.other.transport.can_write_eof() and not self.other.transport.is_closing():
            self.other.transport.write_eof()
        self.joint.watch()
        return True

    def pause_writing(self) -> None:
        self.blocked = True
        self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        self.blocked = False
        self.joint.moved()
        if self.joint.parting:
            # the last bytes are in a frame that is still being made, which a reset would overtake
            self.joint.loop.call_soon(self.joint.cut)
            return
        if not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        joint = self.joint
        if joint.over:
            return
        if exc is not None:
            self._hear_out()
            joint.fail(self, exc)
        elif self.over and self.other.over:
            joint.check_lost()
        elif not self.over:
            joint.fail(
                self, ConnectionAbortedError(f"the {self.name} side was closed before its end of file")
            )
        else:
            joint.fail(
                self, ConnectionAbortedError(f"the {self.name} side was closed while the other still sent")
            )

    def _hear_out(self) -> None:
        """Pass on what a failed socket's kernel buffer still holds: asyncio reads no more once a write failed."""
        sock = None if isinstance(self.transport, Stream) else self.transport.get_extra_info("socket")
        if sock is None or self is not self.joint.right or self.over:
            return
        left_bytes = _LAST_WORDS_BYTES
        with contextlib.suppress(OSError):  # the end of what was readable
            while left_bytes > 0 and sock.fileno() >= 0 and (data := os.read(sock.fileno(), left_bytes)):
                left_bytes -= len(data)
                self.data_received(data)


def is_ordinary(error: BaseException | None) -> bool:
    """Whether a splice ended in an ordinary way: two ends of file, or one stream's own reset.

    The death of a session is not ordinary, whatever it wraps: the kind of the error decides, never its cause.
    """
    if isinstance(error, SessionDead):
        return False
    return error is None or isinstance(error, StreamReset)
