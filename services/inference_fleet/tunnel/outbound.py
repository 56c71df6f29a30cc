"""The sending half of a session: a bounded backlog, frames in the order the core says.

Over an awaited carrier one writer task sends. Over a direct one whoever brings much also sends it, with no copy; what
is little waits for the end of the loop's turn, so that all that a turn brought for a session goes out as one message:

| what there is to send                                 | goes out                             |
|-------------------------------------------------------|--------------------------------------|
| the write with which a turn's reach `AT_ONCE_BYTES`   | at once, with everything that waited |
| credit for `AT_ONCE_BYTES` or more                    | at once, before they are passed on   |
| what else one read of the session's carrier asked for | when all of the read is told         |
| anything else                                         | when the loop's turn is over         |
"""

from __future__ import annotations

import asyncio
import contextvars
from typing import TYPE_CHECKING, Final

from inference_fleet.tunnel.backlog import Backlog
from inference_fleet.tunnel.carrier import DirectCarrier
from inference_fleet.tunnel.yamux.stalls import CARRIER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inference_fleet.tunnel.carrier import Carrier
    from inference_fleet.tunnel.stream import Stream
    from inference_fleet.tunnel.watch import StallWatch
    from inference_fleet.tunnel.yamux.core import Mux
    from inference_fleet.tunnel.yamux.limits import Limits

AT_ONCE_BYTES: Final = 16 * 1024
_BATCH_BYTES: Final = 256 * 1024


class WriteStalled(ConnectionError):
    """A write to the carrier did not finish in time: the peer stopped reading the connection."""


class Outbound:
    """Sends whenever the core has something to send. Nobody waits on it: it is only woken."""

    def __init__(
        self,
        mux: Mux,
        streams: Mapping[int, Stream],
        carrier: Carrier | DirectCarrier,
        *,
        stall_s: float,
        limits: Limits,
        watch: StallWatch,
        failed: Callable[[Exception], None],
    ) -> None:
        """`streams` is the session's own table; `limits` bound the payload that waits.

        `failed` is told what keeps a direct carrier from being written: whoever happened to write is not to blame.
        """
        self._mux = mux
        self._streams = streams
        self._carrier = None if isinstance(carrier, DirectCarrier) else carrier
        self._direct = carrier if isinstance(carrier, DirectCarrier) else None
        self._held = True
        self._pumping = False
        self._soon = False
        self._gathered = 0
        self._context = contextvars.copy_context()  # what is sent together belongs to no single writer
        self._stall_s = stall_s
        self._failed = failed
        self._watch = watch
        self._limits = limits
        self._backlog = Backlog(share=limits.stream_backlog, common=limits.session_backlog)
        self._work = asyncio.Event()
        self._quiet = asyncio.Event()
        self._over = False

    @property
    def backlog(self) -> int:
        """Payload bytes that wait for the carrier."""
        return self._backlog.waiting

    def wake(self) -> None:
        """There may be something to send."""
        if self._direct is None:
            self._work.set()
        elif not self._held and not self._soon:
            self._soon = True
            asyncio.get_running_loop().call_soon(self.send_now, context=self._context)

    def send_now(self) -> None:
        """There may be something to send that has waited, or need not."""
        self._soon = False
        self._gathered = 0
        if self._direct is None:
            self._work.set()
        elif not self._held:
            self._pump(self._direct)

    def credited(self, length: int) -> None:
        """The peer may be due credit for what its reader here is about to pass on; for much it is told before that."""
        if self._direct is not None and length >= AT_ONCE_BYTES:
            self._pump(self._direct)
        else:
            self.wake()

    def hold(self) -> None:
        """Collect what is to be sent until `let_go`, so that one read is answered by one write."""
        self._held = True

    def let_go(self) -> None:
        """Send what was collected and everything from now on as it comes."""
        self._held = False
        self.send_now()

    def stop(self) -> None:
        """Nothing goes out any more."""
        self._over = self._held = True
        self._watch.stop()
        self._quiet.set()

    def room(self, stream: Stream) -> int:
        """How many more bytes of the stream may wait."""
        return self._backlog.room(stream.get_write_buffer_size())

    def full(self, stream: Stream) -> str:
        """What a stream is told that found no room."""
        own, common = self._limits.stream_backlog, self._limits.session_backlog
        return (
            f"session_backlog={common} bytes past stream_backlog={own} of each stream would be passed; "
            f"{stream.get_write_buffer_size()} of its own and {self._backlog.waiting} of all streams wait"
        )

    def add(self, stream: Stream, length: int) -> None:
        """More bytes of the stream wait."""
        self._backlog.add(length, waiting=stream.get_write_buffer_size())
        self._gathered += length
        if self._gathered >= AT_ONCE_BYTES:
            self.send_now()
        else:
            self.wake()

    def discard(self, unsent: int) -> None:
        """A stream ended, and all it had waiting will never go."""
        self._backlog.remove(unsent, waiting=unsent)

    async def run(self) -> None:
        """The one writer; ends only by an error of the carrier, by `WriteStalled` or by cancellation."""
        try:
            while True:
                await self._work.wait()
                self._work.clear()
                while parts := self._gather():
                    await self._send(b"".join(parts))
                self._watch.see()
                self._quiet.set()
        finally:
            self._over = True
            self._quiet.set()

    async def flush(self) -> None:
        """Wait until everything that can go has gone to the carrier, or the writer has ended."""
        if not self._over:
            self._quiet.clear()
            self.let_go()
            await self._quiet.wait()

    def _pump(self, direct: DirectCarrier) -> None:
        """Write until nothing is left or the transport is full; a frame that makes its writer write is not entered twice."""
        if self._pumping or self._over:
            return
        self._pumping = True
        if direct.can_write:
            self._watch.stalls.end(CARRIER)
        try:
            while direct.can_write:
                parts = self._gather()
                if not parts:
                    self._quiet.set()
                    return
                direct.write(parts)
        except Exception as error:  # noqa: BLE001  # named in the session's ending
            self.stop()
            self._failed(error)
        finally:
            self._pumping = False
            if self._backlog.waiting and not direct.can_write:
                self._watch.stalls.begin(CARRIER)
            self._watch.see()

    async def _send(self, batch: bytes) -> None:
        assert self._carrier is not None, "a direct carrier is pumped"
        self._watch.stalls.begin(CARRIER)
        self._watch.see()
        try:
            async with asyncio.timeout(self._stall_s):
                await self._carrier.send(batch)
        except TimeoutError:
            raise WriteStalled(
                f"the peer stopped reading: a write did not finish in {self._stall_s:g} s"
            ) from None
        self._watch.stalls.end(CARRIER)

    def _gather(self) -> list[bytes | memoryview]:
        parts: list[bytes | memoryview] = []
        size = 0
        while size < _BATCH_BYTES and (frame := self._mux.next_outgoing()) is not None:
            parts.append(frame.header)
            size += len(frame.header) + frame.length
            if frame.stream:
                stream = self._streams[frame.stream]
                if frame.length:
                    self._backlog.remove(frame.length, waiting=stream.get_write_buffer_size())
                    stream.take(frame.length, parts)
                if frame.final:
                    stream.fin_sent()
        return parts
