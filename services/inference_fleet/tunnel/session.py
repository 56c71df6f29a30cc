"""One yamux session over a carrier: a reader that never waits on the writer, one writer, and a pulse.

Everything it starts lives inside `run()`; cancelling `run()` aborts. When a session dies each of its streams
gets `SessionDead` with the cause, which is another error than a `StreamReset` of one stream.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from inference_fleet.tunnel.carrier import DirectCarrier
from inference_fleet.tunnel.errors import Ending, SessionDead, StreamReset
from inference_fleet.tunnel.handlers import Handlers
from inference_fleet.tunnel.inbound import Inbound
from inference_fleet.tunnel.keepalive import Keepalive
from inference_fleet.tunnel.notices import Reporter, ResetCause
from inference_fleet.tunnel.outbound import Outbound, WriteStalled
from inference_fleet.tunnel.stream import Stream, reset_by_peer
from inference_fleet.tunnel.watch import StallWatch
from inference_fleet.tunnel.yamux.core import Mux
from inference_fleet.tunnel.yamux.events import Finished, GoneAway, Opened, PingAnswered, Refused, Reset
from inference_fleet.tunnel.yamux.limits import Limits
from inference_fleet.tunnel.yamux.wire import GO_AWAY_INTERNAL, GO_AWAY_MEANING, GO_AWAY_NORMAL, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from inference_fleet.settings import Deadline, Timings
    from inference_fleet.tunnel.carrier import Carrier
    from inference_fleet.tunnel.notices import Notices
    from inference_fleet.tunnel.splice import Joint
    from inference_fleet.tunnel.yamux.events import Event

_P = ParamSpec("_P")
_R = TypeVar("_R")
_log = logging.getLogger(__name__)
_CLOSE_NORMAL, _CLOSE_PROTOCOL, _CLOSE_INTERNAL = 1000, 1002, 1011


class Session:
    """One end of a tunnel. `client` is the side that dialled (odd stream ids)."""

    def __init__(
        self,
        carrier: Carrier | DirectCarrier,
        *,
        client: bool,
        timings: Timings,
        limits: Limits | None = None,
        on_stream: Callable[[Stream], Awaitable[Joint | None]] | None = None,
        name: str = "",
        notices: Notices | None = None,
    ) -> None:
        """`on_stream` serves streams the peer opens, each in a task of the session; without it they are reset."""
        self.name = name or ("client" if client else "server")
        self.round_trip_s: float | None = None
        self._carrier = carrier
        self.timings = timings
        self._limits = limits or Limits()
        self._mux = Mux(
            client=client,
            limits=self._limits,
            accepting=on_stream is not None,
            local_s=timings.local_round_trip_s,
        )
        self._reporter = Reporter(self.name, notices, quiet_s=timings.stall_notice_s)
        self._streams: dict[int, Stream] = {}
        self._group: asyncio.TaskGroup | None = None
        self._out = Outbound(
            self._mux,
            self._streams,
            carrier,
            stall_s=timings.write_stall_s,
            limits=self._limits,
            watch=StallWatch(self._mux.stalls, notice_s=timings.stall_notice_s, told=self._reporter.stalled),
            failed=self.failed,
        )
        self._in = Inbound(self._mux, self._streams, self._out, self)
        self._handlers = Handlers(on_stream, name=self.name)
        self._empty = asyncio.Event()
        self._empty.set()
        self._leaving = asyncio.Event()
        self._over = asyncio.Event()
        self._finished = asyncio.Event()
        self._ending: Ending | None = None
        self.peer_left = False  # it said that it goes away
        self._farewell: tuple[int, str] | None = None

    def __repr__(self) -> str:
        state = "connected" if self.connected else "leaving" if self._ending is None else "over"
        return f"<Session {self.name} {state} streams={self.streams_open}>"

    # ---- facts

    @property
    def connected(self) -> bool:
        """Whether it takes new streams: false from the first go-away, close or death on."""
        return not self._leaving.is_set()

    @property
    def streams_open(self) -> int:
        """Streams that have not ended in both directions."""
        return len(self._streams)

    @property
    def ending(self) -> Ending | None:
        """Why it ended, once it has."""
        return self._ending

    async def wait_leaving(self) -> None:
        """Return once the session takes no new streams."""
        await self._leaving.wait()

    # ---- commands

    def open_stream(self) -> Stream:
        """A stream to the peer, usable at once; raises `SessionDead` or `StreamLimit`."""
        stream_id = self._guarded(self._mux.open) if self.connected else None
        if stream_id is None:
            raise SessionDead(self._ending.cause if self._ending else "it is going away: no new streams")
        stream = self._adopt(stream_id)
        self._out.wake()
        return stream

    def go_away(self, reason: str = "") -> None:
        """No new streams either way; running ones finish."""
        if self._ending is None and self.connected:
            _log.info("tunnel %s: going away: %s", self.name, reason or "no reason given")
            self._leaving.set()
            self._guarded(self._mux.go_away)
            self._out.wake()

    async def drained(self, deadline: Deadline) -> bool:
        """Wait for the last stream to end; whether it did so in time."""
        try:
            async with asyncio.timeout(deadline.remaining_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Say go-away, close the carrier, cut what still runs; returns once `run()` is done with it."""
        self._out.send_now()  # the last words of this turn, which no stream keeps from here on
        self._end(Ending(clean=not self._streams, cause="closed here"), farewell=(_CLOSE_NORMAL, "closed"))
        if self._group is None:
            if not await self._say_goodbye():
                self._carrier.abort()
        else:
            await self._finished.wait()

    async def run(self) -> Ending:
        """Drive the session to its end and say why it ended."""
        if self._group is not None:
            raise RuntimeError(f"session {self.name} ran before; a session runs once")
        self._keepalive = Keepalive(
            interval_s=self.timings.keepalive_interval_s,
            timeout_s=self.timings.keepalive_timeout_s,
            now=time.monotonic(),
        )
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    await self._drive(group)
                except BaseException:
                    self._abandon()  # before the group waits for its tasks: nothing is read meanwhile
                    raise
        except BaseException:
            self._abandon()
            raise
        finally:
            self._finished.set()
        assert self._ending is not None
        return self._ending

    async def _drive(self, group: asyncio.TaskGroup) -> None:
        parts: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {"pulse": self._pulse}
        if not isinstance(self._carrier, DirectCarrier):
            parts["read"] = functools.partial(self._in.read, self._carrier)
        tasks = [
            group.create_task(self._fenced(part), name=f"tunnel {self.name} {name}")
            for name, part in parts.items()
        ]
        writer = self._begin_writing(group)
        await self._over.wait()
        for task in tasks:
            task.cancel()
        closed = await self._say_goodbye()
        if writer is not None:
            writer.cancel()
        self._out.stop()
        if not closed:
            self._carrier.abort()
        clean = self._ending is not None and self._ending.clean
        await self._handlers.settle(self.timings.stream_linger_s if clean else 0)

    def _abandon(self) -> None:
        self._end(Ending(clean=False, cause="aborted here"))
        self._out.stop()
        self._carrier.abort()
        self._handlers.cut()

    # ---- what streams ask (StreamHost)

    def stream_accepted(self, stream: Stream) -> None:
        """Acknowledge it."""
        self._mux.accept(stream.id)
        self._out.wake()

    def stream_room(self, stream: Stream) -> int:
        """How many more bytes fit into the backlog."""
        return self._out.room(stream)

    def stream_overflows(self, stream: Stream) -> None:
        """Reset the stream that would break the bound of the backlog."""
        self.stream_reset(stream, ResetCause.BACKLOG)
        stream.ended(StreamReset(f"stream {stream.id}: {self._out.full(stream)}"))

    def stream_wrote(self, stream: Stream, length: int) -> None:
        """`length` more bytes wait in the stream's outbox."""
        self._mux.offer(stream.id, length)
        self._out.add(stream, length)

    def stream_finished(self, stream: Stream) -> None:
        """FIN after the stream's data."""
        self._mux.finish(stream.id)
        self._out.wake()

    def stream_reset(self, stream: Stream, cause: ResetCause) -> None:
        """RST before everything."""
        self._reporter.reset(stream.id, cause, time.monotonic())
        self._guarded(self._mux.reset, stream.id)
        self._out.wake()

    def stream_consumed(self, stream: Stream, length: int) -> None:
        """Credit given on consumption."""
        self._mux.consumed(stream.id, length, time.monotonic())
        self._out.credited(length)

    def stream_dropped(self, stream: Stream, unsent: int) -> None:
        """The stream has ended."""
        self._out.discard(unsent)
        self._streams.pop(stream.id, None)
        if not self._streams:
            self._empty.set()
            if self.peer_left and self._ending is None:
                self._end(
                    Ending(clean=True, cause="the peer went away and the last stream ended"),
                    farewell=(_CLOSE_NORMAL, "went away"),
                )

    def stream_credit(self, stream: Stream) -> int:
        """What its peer lets it send now."""
        return self._mux.send_credit(stream.id)

    # ---- reading, and what the receiving half asks (InboundHost)

    def is_over(self) -> bool:
        """Whether it has ended; `run` may still be saying goodbye."""
        return self._over.is_set()

    def heard(self) -> None:
        """The peer lives."""
        self._keepalive.heard(time.monotonic())

    def closed_by_peer(self) -> None:
        """End it since nothing comes any more."""
        clean = not self._streams and not self.connected
        self._end(Ending(clean=clean, cause="the peer closed the connection"))

    def _begin_writing(self, group: asyncio.TaskGroup) -> asyncio.Task[None] | None:
        if isinstance(self._carrier, DirectCarrier):
            self._carrier.attach(self._in)
            self._out.let_go()
            return None
        return group.create_task(self._fenced(self._out.run), name=f"tunnel {self.name} write")

    def on_event(self, event: Event) -> None:
        """What the core made of what came."""
        match event:
            case Opened(stream=stream_id):
                assert self._group is not None, "frames are read inside run()"
                self._handlers.serve(self._adopt(stream_id), self._group)
            case Finished(stream=stream_id):
                if (stream := self._streams.get(stream_id)) is not None:
                    stream.peer_finished()
            case Reset(stream=stream_id, refused=refused):
                if (stream := self._streams.get(stream_id)) is not None:
                    cause = ResetCause.REFUSED_BY_PEER if refused else ResetCause.PEER
                    self._reporter.reset(stream_id, cause, time.monotonic())
                    stream.ended(reset_by_peer(stream, refused=refused))
            case Refused(stream=stream_id, why=why):
                self._reporter.reset(stream_id, ResetCause.REFUSED, time.monotonic(), why=why)
            case PingAnswered(round_trip_s=round_trip_s):
                self.round_trip_s = round_trip_s
            case GoneAway(code=code):
                self._on_gone_away(code)
            case _:
                pass  # Acknowledged and Credited change only what the writer may send, which it asks the core

    def _on_gone_away(self, code: int) -> None:
        if code != GO_AWAY_NORMAL:
            self._end(Ending(clean=False, cause=f"the peer ended the session: {GO_AWAY_MEANING[code]}"))
            return
        self.peer_left = True
        self._leaving.set()
        if not self._streams:
            self._end(Ending(clean=True, cause="the peer went away"), farewell=(_CLOSE_NORMAL, "went away"))

    # ---- life and death

    async def _pulse(self) -> None:
        while not (pulse := self._keepalive.pulse(now := time.monotonic())).dead:
            if pulse.ping:
                self._mux.ping(now)
                self._out.wake()
            await asyncio.sleep(pulse.wait_s)
        timeout_s = self.timings.keepalive_timeout_s
        self._end(Ending(clean=False, cause=f"nothing came back within {timeout_s:g} s of a ping"))

    async def _fenced(self, part: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run one part of the session; however it fails, the session ends with the name of that failure.

        The part is started in here: a session closed before its tasks ran must leave none of them un-awaited.
        """
        try:
            await part()
        except Exception as error:  # noqa: BLE001  # logged, told to the peer and named in the ending
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """End the session by the name of what one of its parts met."""
        match error:
            case ProtocolError():
                self._broken(error)
            case WriteStalled():
                self._end(Ending(clean=False, cause=str(error)))
            case OSError():
                self._end(Ending(clean=False, cause=f"the connection failed: {error}"))
            case _:
                _log.error("tunnel %s: the session failed", self.name, exc_info=error)
                self._mux.fail(GO_AWAY_INTERNAL)
                self._end(
                    Ending(clean=False, cause=f"internal error: {error!r}"),
                    farewell=(_CLOSE_INTERNAL, "internal error"),
                )

    def _guarded(self, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R | None:
        """A command to the core from outside the session's own tasks; None when it ended the session."""
        try:
            return call(*args, **kwargs)
        except ProtocolError as error:
            self._broken(error)
            return None

    def _broken(self, error: ProtocolError) -> None:
        _log.warning("tunnel %s: protocol error: %s", self.name, error)
        self._end(
            Ending(clean=False, cause=f"protocol error: {error}"),
            farewell=(_CLOSE_PROTOCOL, error.breach.value),
        )

    def _end(self, ending: Ending, *, farewell: tuple[int, str] | None = None) -> None:
        if self._ending is not None:
            return
        self._ending = ending
        self._farewell = farewell
        self._leaving.set()
        if self._streams:
            self._mux.fail(GO_AWAY_NORMAL)
        for stream in list(self._streams.values()):
            stream.ended(SessionDead(ending.cause))
        self._over.set()

    async def _say_goodbye(self) -> bool:
        """Flush the go-away and close the carrier, as far as the peer still reads; whether it was all said."""
        if self._farewell is None:
            return False
        code, reason = self._farewell
        try:
            async with asyncio.timeout(self.timings.keepalive_timeout_s):
                if self._group is not None:
                    self._guarded(self._mux.go_away)
                    await self._out.flush()
                await self._carrier.close(code, reason)
        except (TimeoutError, OSError) as error:
            _log.info("tunnel %s: no goodbye to the peer: %r", self.name, error)
            return False
        return True

    def _adopt(self, stream_id: int) -> Stream:
        stream = self._streams[stream_id] = Stream(self, stream_id, asyncio.get_running_loop())
        self._empty.clear()
        self._guarded(self._mux.measure, time.monotonic())  # before any data stands in the way
        return stream
