"""Two TCP connections joined byte for byte: half-close kept, back-pressure kept, either can be held or torn.

The shell under the balancer and the link. Nothing here knows HTTP. Where a side has a `Way`, what it says travels on that.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TYPE_CHECKING, cast

from blackstart.net.proxy_way import Mark, Way

if TYPE_CHECKING:
    from blackstart.core.line import Line

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


def reset(transport: asyncio.Transport) -> None:
    """End a connection so that the other side sees a TCP reset, not an end of file."""
    sock = transport.get_extra_info("socket")
    if sock is not None and not transport.is_closing():
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()


class Side(asyncio.Protocol):
    """One connection of a pair. Until `join` it collects what arrives, up to what its reader asks of it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: Side | None = None
        self.moved = 0
        self._held = False
        self.blocked = False  # the other side's buffer is full
        self.ended = False
        self.arrived = False  # its end of file has been told to the other side
        self._discarding = False
        self._orphaned = False  # the other side is gone and its last words are still on their way
        self._out: Way | None = None  # to the other side
        self._in: Way | None = None  # from it
        self.early = bytearray()

    # --- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Pass on, or keep for the reader of the head."""
        if self._discarding or self._orphaned:
            return
        if self.other is None:
            self.early += data
            self.before_joined(self.early)
        elif self.other.transport is not None:
            self.moved += len(data)
            if self._out is None:
                self.other.transport.write(data)
            else:
                self._out.put(data)

    def eof_received(self) -> bool:
        """The peer will send no more: the pair stays open in the other direction."""
        self.ended = True
        if self._discarding:
            return False  # nothing is owed in either direction
        if self._orphaned:
            return True
        if self.other is None:
            self.ended_before_joined()
        else:
            self.pass_end()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """Gone: the other side ends in the same way, a reset with a reset.

        Not when this side had ended its own direction before: then all it had to say is on its way to the other, and a
        reset would destroy that.
        """
        other, self.other = self.other, None
        torn = exc is not None and not self.ended
        if self._in is not None:
            self._in.drop()
        if other is not None and other.transport is not None:
            other.other = None
            if self._out is None or self._held:
                other.finish(torn=torn)
            else:
                other.orphan()
                self._out.mark(Mark.RESET if torn else Mark.CLOSE)
        self.lost()

    def pause_writing(self) -> None:
        """We cannot take more: the other side stops reading."""
        if self._in is not None:
            self._in.block()
        elif self.other is not None:
            self.other.blocked = True
            self.other.steer()

    def resume_writing(self) -> None:
        """We can take more again."""
        if self._in is not None:
            self._in.unblock()
        elif self.other is not None:
            self.other.blocked = False
            self.other.steer()

    # --- what a subclass may care about

    def before_joined(self, data: bytearray) -> None:
        """Something arrived while there is no other side yet; `data` is all of it so far."""

    def ended_before_joined(self) -> None:
        """The peer ended its direction while there is no other side yet."""

    def lost(self) -> None:
        """The connection is gone."""

    # --- what the owner does

    def join(self, other: Side, *, first: bytes = b"") -> None:
        """From here on bytes go across. `first` goes to `other` ahead of everything."""
        self.other, other.other = other, self
        if first and other.transport is not None:
            other.transport.write(first)
        for side in (self, other):
            early, side.early = bytes(side.early), bytearray()
            if early:
                side.data_received(early)
            if side.ended:
                side.pass_end()
            side.steer()

    def travel(self, other: Side, line: Line) -> Way:
        """Before `join`: what goes from here to `other` travels on `line`."""
        self._out = other._in = Way(line, self, other)
        return self._out

    def hold(self) -> None:
        """Read and hand on nothing until `release`: to the peer the network looks like a hole, not like an end."""
        self._held = True
        if self._out is not None:
            self._out.hold()
        self.steer()

    def release(self) -> None:
        """The end of `hold`."""
        self._held = False
        if self._out is not None:
            self._out.release()
        self.steer()

    def discard(self) -> None:
        """Read and drop whatever still comes, and close when the peer does: the end of a talk that has no other side."""
        self._discarding = True
        self.early.clear()
        self.release()
        if self.ended and self.transport is not None:
            self.transport.close()

    def take_early(self) -> bytes:
        """What came before joining; the caller now answers for it."""
        early, self.early = bytes(self.early), bytearray()
        return early

    def pass_end(self) -> None:
        """The peer sends no more: tell the other side."""
        if self.other is None or self.other.transport is None:
            return
        if self._out is None:
            self.arrived_end(self.other)
        else:
            self._out.mark(Mark.END)

    def arrived_end(self, other: Side) -> None:
        """Our end of file has come to `other`; both close when that is true of both directions."""
        self.arrived = True
        if other.transport is None:
            return
        if other.transport.can_write_eof() and not other.transport.is_closing():
            other.transport.write_eof()
        if other.arrived:
            for side in (self, other):
                if side.transport is not None:
                    side.transport.close()

    def orphan(self) -> None:
        """The other side is gone: nobody is there for what still comes, and how it ended is on its way."""
        self._orphaned = True

    def finish(self, *, torn: bool) -> None:
        """The other side is over: end in the same way."""
        if self.transport is None:
            return
        if torn:
            reset(self.transport)
        else:
            self.transport.close()

    def steer(self) -> None:
        """Read, or not, as hold and back-pressure say."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._held or self.blocked or (self._out is not None and self._out.full):
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()
