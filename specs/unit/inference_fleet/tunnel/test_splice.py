from __future__ import annotations

import asyncio
import select
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from inference_fleet.tunnel import Limits, SessionDead, Spliced, SpliceStalled, StreamReset, splice
from inference_fleet.tunnel.echo import echo_stream
from inference_fleet.tunnel.loopback import connect_loopback
from inference_fleet.tunnel.splice import Joint, is_ordinary
from inference_fleet.tunnel.yamux.wire import INITIAL_WINDOW

from .linked import TIMINGS, Collector, until, within
from .piped import Piped, piped
from .services import answer_after_eof, reset_connection, service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from inference_fleet.tunnel import Stream

    from .services import Serve

STALL_S = TIMINGS.splice_stall_s / 10


@dataclass
class Joined:
    """A stream spliced to a service: `stream` and `seen` are the far end of the stream."""

    stream: Stream
    seen: Collector
    result: asyncio.Future[Spliced]
    task: asyncio.Future[asyncio.Task[None]]
    session: Piped
    counted: list[int]
    heard: list[None]

    def parked(self) -> bool:
        """Whether the splice waits for credit, all that was told being used: how much lies unread depends on the rest."""
        ours, theirs = self.session.client, self.session.server
        credit = ours._mux._streams[self.stream.id].recv_credit
        return not credit and theirs._streams[self.stream.id]._writing_paused


@asynccontextmanager
async def joined(
    serve: Serve, *, stall_s: float = STALL_S, limits: Limits | None = None
) -> AsyncIterator[Joined]:
    """`serve` behind a splice at the accepting end of a session."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Spliced] = loop.create_future()
    task: asyncio.Future[asyncio.Task[None]] = loop.create_future()
    counted: list[int] = []
    heard: list[None] = []

    async def handler(stream: Stream) -> None:
        current = asyncio.current_task()
        assert current is not None
        task.set_result(current)
        transport = await connect_loopback("127.0.0.1", port, within_s=TIMINGS.backend_connect_s)
        spliced = await splice(
            stream, transport, stall_s=stall_s, count=counted.append, heard=lambda: heard.append(None)
        )
        result.set_result(spliced)

    async with service(serve) as port, piped(on_server_stream=handler, limits=limits) as session:
        stream, seen = session.client.open_stream(), Collector()
        stream.set_protocol(seen)
        yield Joined(stream, seen, result, task, session, counted, heard)


def test_only_what_the_right_side_says_is_heard() -> None:
    async def story() -> None:
        async with joined(answer_after_eof) as join:
            join.stream.write(bytes(1000))
            await until(lambda: sum(join.counted) == 1000)
            assert not join.heard, "the caller's bytes were taken for the service's"
            join.stream.write_eof()
            await within(join.seen.lost)
            assert join.heard

    asyncio.run(story())


@pytest.mark.holds("B-28", "T-16")
def test_a_half_close_passes_through_and_the_other_direction_still_answers() -> None:
    async def story() -> None:
        async with joined(answer_after_eof) as join:
            join.stream.write(bytes(1_000_000))
            join.stream.write_eof()
            await within(join.seen.lost)
            assert bytes(join.seen.data) == b"got 1000000"
            spliced = await within(join.result)
            assert spliced == Spliced(to_right=1_000_000, to_left=11)
            assert sum(join.counted) == 1_000_011

    asyncio.run(story())


def test_a_service_that_speaks_first_is_heard() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        await reader.read()

    async def story() -> None:
        async with joined(greet) as join:
            await until(lambda: bytes(join.seen.data) == b"220 hello\r\n")
            join.stream.write_eof()
            assert (await within(join.result)) == Spliced(to_right=0, to_left=11)

    asyncio.run(story())


def test_a_service_that_spoke_and_left_before_the_splice_is_heard_to_the_end() -> None:
    async def story() -> None:
        async def leave(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"busy")

        async with service(leave) as port:
            transport = await connect_loopback("127.0.0.1", port, within_s=TIMINGS.backend_connect_s)
            await asyncio.sleep(TIMINGS.loop_lag_sample_s / 10)
            taken: asyncio.Future[Spliced] = asyncio.get_running_loop().create_future()

            async def handler(stream: Stream) -> None:
                taken.set_result(await splice(stream, transport, stall_s=STALL_S))

            async with piped(on_server_stream=handler) as session:
                stream, seen = session.client.open_stream(), Collector()
                stream.set_protocol(seen)
                await within(seen.eof)
                assert bytes(seen.data) == b"busy"
                stream.write_eof()
                await within(taken)

    asyncio.run(story())


@pytest.mark.holds("B-33")
def test_a_service_that_resets_is_an_error_of_its_side_and_resets_the_stream() -> None:
    async def crash(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        reset_connection(writer)

    async def story() -> None:
        async with joined(crash) as join:
            join.stream.write(b"boom")
            assert isinstance(await within(join.seen.lost), StreamReset)
            spliced = await within(join.result)
            assert isinstance(spliced, Spliced)
            assert spliced.failed == "right"
            assert isinstance(spliced.error, ConnectionResetError)
            assert not is_ordinary(spliced.error), "a broken service is not a normal ending"

    asyncio.run(story())


@pytest.mark.holds("B-33")
def test_an_answer_given_while_the_request_still_comes_arrives_before_the_reset() -> None:
    answer = b"HTTP/1.1 413 Content Too Large\r\nConnection: close\r\n\r\n"

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.write(answer)
        await writer.drain()
        reset_connection(writer)  # what a close does while bytes of the request are unread

    async def story() -> None:
        result: asyncio.Future[Spliced] = asyncio.get_running_loop().create_future()

        async with service(early) as port:
            transport = await connect_loopback("127.0.0.1", port, within_s=TIMINGS.backend_connect_s)
            transport.write(b"P")
            ends = select.poll()
            ends.register(transport.get_extra_info("socket").fileno(), 0)
            await until(lambda: bool(ends.poll(0)))  # both the answer and the reset are in the kernel

            async def handler(stream: Stream) -> None:
                await until(lambda: stream._inbox.length > 0)
                result.set_result(await splice(stream, transport, stall_s=STALL_S))

            async with piped(on_server_stream=handler) as session:
                stream, seen = session.client.open_stream(), Collector()
                stream.set_protocol(seen)
                stream.write(b"the rest of the request")
                assert isinstance(await within(seen.lost), StreamReset)
                assert bytes(seen.data) == answer, "the service's answer was lost"
                spliced = await within(result)
                assert isinstance(spliced, Spliced)
                assert (spliced.failed, spliced.to_left) == ("right", len(answer))

    asyncio.run(story())


def test_a_stream_that_is_reset_ends_the_service_connection_at_once() -> None:
    async def story() -> None:
        ended = asyncio.Event()

        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"ready")
            with pytest.raises(ConnectionResetError):
                await reader.read()
            ended.set()

        async with joined(wait) as join:
            await until(lambda: bytes(join.seen.data) == b"ready")
            join.stream.abort()
            await within(ended.wait())
            spliced = await within(join.result)
            assert isinstance(spliced, Spliced)
            assert (type(spliced.error), spliced.failed) == (StreamReset, "left")
            assert is_ordinary(spliced.error)

    asyncio.run(story())


async def _pour(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A body without end."""
    while True:
        writer.write(bytes(INITIAL_WINDOW))
        await writer.drain()


@pytest.mark.holds("B-29")
def test_a_peer_that_stops_reading_mid_body_and_then_hangs_up_ends_the_splice() -> None:
    async def story() -> None:
        async with joined(_pour) as join:
            await until(lambda: len(join.seen.data) > INITIAL_WINDOW)
            join.stream.pause_reading()
            await until(join.parked)
            before = sum(join.counted)
            await asyncio.sleep(STALL_S / 3)
            assert sum(join.counted) == before, "control: the copy is parked in its write"
            join.stream.abort()
            spliced = await within(join.result)
            assert isinstance(spliced, Spliced)
            assert type(spliced.error) is StreamReset

    asyncio.run(story())


@pytest.mark.holds("B-29")
def test_a_peer_that_stops_reading_mid_body_after_its_half_close_is_cut_by_name() -> None:
    async def story() -> None:
        async with joined(_pour) as join:
            join.stream.pause_reading()
            join.stream.write_eof()
            await until(join.parked)
            spliced = await within(join.result)
            assert isinstance(spliced, Spliced)
            assert type(spliced.error) is SpliceStalled
            assert "left side read nothing" in str(spliced.error)
            assert not is_ordinary(spliced.error)

    asyncio.run(story())


def test_a_slow_reader_after_its_half_close_is_not_cut() -> None:
    body = 3 * INITIAL_WINDOW

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.write(bytes(body))
        await writer.drain()

    async def story() -> None:
        async with joined(answer) as join:
            join.stream.pause_reading()
            join.stream.write_eof()
            while len(join.seen.data) < body:
                await asyncio.sleep(STALL_S / 3)
                join.stream.resume_reading()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                join.stream.pause_reading()
            join.stream.resume_reading()
            spliced = await within(join.result)
            assert isinstance(spliced, Spliced)
            assert (spliced.error, spliced.to_left) == (None, body)

    asyncio.run(story())


def test_a_parked_splice_holds_a_bounded_amount() -> None:
    async def story() -> None:
        async with joined(_pour, stall_s=TIMINGS.splice_stall_s) as join:
            join.stream.pause_reading()
            await until(lambda: join.stream._inbox.length == INITIAL_WINDOW)
            await asyncio.sleep(STALL_S / 3)
            (server_side,) = join.session.server._streams.values()
            assert server_side.get_write_buffer_size() <= 2 * INITIAL_WINDOW
            join.stream.abort()
            await within(join.result)

    asyncio.run(story())


@pytest.mark.holds("T-14")
def test_a_splice_reads_no_more_of_its_service_than_its_stream_may_have_waiting() -> None:
    limits = Limits(session_backlog=1)

    async def story() -> None:
        async with joined(_pour, stall_s=TIMINGS.splice_stall_s, limits=limits) as join:
            for _ in range(3):
                join.stream.pause_reading()
                await until(lambda: join.stream.is_closing() or join.parked())
                assert not join.stream.is_closing(), "reset for having read what finds no room"
                (server_side,) = join.session.server._streams.values()
                assert server_side.get_write_buffer_size() <= limits.stream_backlog + 1
                join.seen.data.clear()
                join.stream.resume_reading()
                await until(lambda: len(join.seen.data) > 2 * INITIAL_WINDOW)
            join.stream.abort()
            await within(join.result)

    asyncio.run(story())


@pytest.mark.holds("B-30", "B-31")
def test_session_death_is_a_failure_whatever_it_wraps_and_one_streams_reset_is_not() -> None:
    async def story() -> None:
        async with joined(_pour) as join:
            await until(lambda: bool(join.seen.data))
            join.session.server_carrier.inbox.put_nowait(None)
            task = await join.task
            await within(asyncio.wait({task}))
            assert task.cancelled(), "the session took its handlers with it"

    asyncio.run(story())
    death = SessionDead("the peer closed the connection")
    death.__cause__ = EOFError()
    assert not is_ordinary(death)
    assert is_ordinary(StreamReset("one stream"))
    assert is_ordinary(None)


def test_cancelling_a_splice_closes_both_sides() -> None:
    async def story() -> None:
        ended = asyncio.Event()

        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"ready")
            with pytest.raises(ConnectionResetError):
                await reader.read()
            ended.set()

        async with joined(wait) as join:
            await until(lambda: bytes(join.seen.data) == b"ready")
            (await join.task).cancel()
            await within(ended.wait())
            assert isinstance(await within(join.seen.lost), StreamReset)

    asyncio.run(story())


# ---- scripted transports: every ending, named


class Scripted(asyncio.Transport):
    """A transport whose reads and ends a spec decides."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.Protocol
        self.written = bytearray()
        self.eof = False
        self.aborted = False
        self.closed = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return asyncio.Protocol()

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.eof = True

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        self.closed = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True
        asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)


@pytest.mark.holds("B-33")
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "error",
    [
        OSError("a genuine transport failure"),
        SessionDead("keepalive"),
        StreamReset("one stream"),
        BrokenPipeError("gone"),
        None,
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_ending_of_one_side_is_returned_and_ends_the_other(side: str, error: Exception | None) -> None:
    async def story() -> None:
        left, right = Scripted(), Scripted()
        task = asyncio.create_task(splice(left, right, stall_s=STALL_S))
        await asyncio.sleep(0)
        failing, other = (left, right) if side == "left" else (right, left)
        failing.protocol.data_received(b"so far")
        failing.protocol.connection_lost(error)
        spliced = await within(task)
        assert isinstance(spliced, Spliced)
        assert spliced.failed == side
        if error is None:
            assert isinstance(spliced.error, ConnectionAbortedError), "closed without an end of file"
        else:
            assert spliced.error is error
        assert bytes(other.written) == b"so far"
        assert other.aborted

    asyncio.run(story())


def test_a_transport_that_keeps_what_it_is_given_is_given_no_view_of_the_buffer_all_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        left, right = Scripted(), Scripted()
        task = asyncio.create_task(splice(left, right, stall_s=STALL_S))
        await asyncio.sleep(0)
        reader = left.protocol
        assert isinstance(reader, asyncio.BufferedProtocol)
        kept: list[object] = []
        monkeypatch.setattr(right, "write", kept.append)  # as asyncio's own does from Python 3.12 on
        memoryview(reader.get_buffer(-1))[:5] = b"first"
        reader.buffer_updated(5)
        memoryview(reader.get_buffer(-1))[:5] = b"WRONG"
        assert kept == [b"first"]
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(story())


def test_what_a_failed_service_said_waits_for_a_slow_caller_and_not_for_one_that_stopped() -> None:
    class Brimming(Scripted):
        waiting = 5

        def get_write_buffer_size(self) -> int:
            return self.waiting

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            assert (high, low) == (0, None)

    async def story(*, stops: bool) -> None:
        left, right = Brimming(), Scripted()
        task = asyncio.create_task(splice(left, right, stall_s=STALL_S))
        await asyncio.sleep(0)
        right.protocol.data_received(b"early")
        right.protocol.connection_lost(BrokenPipeError("gone"))
        await asyncio.sleep(0)
        assert not left.aborted, "the answer was thrown away with the connection"
        if not stops:
            left.waiting = 0
            left.protocol.resume_writing()
        spliced = await within(task)
        assert isinstance(spliced, Spliced)
        assert isinstance(spliced.error, BrokenPipeError)
        assert left.aborted

    asyncio.run(story(stops=False))
    asyncio.run(story(stops=True))


@pytest.mark.holds("B-28")
def test_it_does_not_return_before_the_second_direction_has_finished() -> None:
    async def story() -> None:
        left, right = Scripted(), Scripted()
        task = asyncio.create_task(splice(left, right, stall_s=TIMINGS.splice_stall_s))
        await asyncio.sleep(0)
        assert left.protocol.eof_received()
        assert (right.eof, left.eof) == (True, False)
        right.protocol.data_received(b"late answer")
        await asyncio.sleep(0)
        assert not task.done()
        right.protocol.eof_received()
        assert (left.eof, left.closed, right.closed) == (True, True, True)
        assert await within(task) == Spliced(to_right=0, to_left=11)

    asyncio.run(story())


def test_a_joint_that_is_over_is_kept_by_nothing() -> None:
    async def story() -> None:
        left, right = Scripted(), Scripted()
        joint = Joint(left, right, stall_s=TIMINGS.splice_stall_s)
        left.protocol.eof_received()
        await asyncio.sleep(0)
        assert joint._timer is not None, "the control: one direction that is over is watched"
        right.protocol.eof_received()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert joint.over
        assert joint._timer is None, "a timer keeps what is over"

    asyncio.run(story())


def test_a_flush_that_makes_no_progress_is_cut() -> None:
    class Clogged(Scripted):
        def get_write_buffer_size(self) -> int:
            return 5

        def close(self) -> None:
            self.closed = True

    async def story() -> None:
        left, right = Scripted(), Clogged()
        task = asyncio.create_task(splice(left, right, stall_s=STALL_S))
        await asyncio.sleep(0)
        left.protocol.eof_received()
        right.protocol.eof_received()
        spliced = await within(task)
        assert isinstance(spliced, Spliced)
        assert type(spliced.error) is SpliceStalled
        assert spliced.failed == "right"

    asyncio.run(story())


def test_a_loop_that_stood_still_itself_cuts_nobody_by_that_time() -> None:
    async def story() -> None:
        left, right = Scripted(), Scripted()
        task = asyncio.create_task(splice(left, right, stall_s=STALL_S))
        await asyncio.sleep(0)
        left.protocol.eof_received()
        left.protocol.pause_writing()
        time.sleep(2 * STALL_S)  # noqa: ASYNC251  # the stall is the point
        for _ in range(5):
            await asyncio.sleep(0)
        assert not task.done(), "cut although nobody could have moved a byte"
        spliced = await within(task)
        assert isinstance(spliced, Spliced)
        assert type(spliced.error) is SpliceStalled, "control: it is cut once the loop runs again"

    asyncio.run(story())


# ---- a relay: both sides are streams


@pytest.mark.holds("B-30", "B-32")
def test_a_relay_keeps_half_close_and_reports_the_death_of_the_far_session_as_session_death() -> None:
    async def story() -> None:
        results: list[Spliced] = []

        async def relay(stream: Stream) -> None:
            onward = far.client.open_stream()
            results.append(await splice(stream, onward, stall_s=STALL_S))

        async with (
            piped(on_server_stream=echo_stream) as far,
            piped(on_server_stream=relay) as near,
        ):
            stream, seen = near.client.open_stream(), Collector()
            stream.set_protocol(seen)
            stream.write(bytes(3 * INITIAL_WINDOW))
            stream.write_eof()
            await within(seen.lost)
            assert len(seen.data) == 3 * INITIAL_WINDOW
            await until(lambda: len(results) == 1)
            assert results[0] == Spliced(to_right=3 * INITIAL_WINDOW, to_left=3 * INITIAL_WINDOW)

            second, second_seen = near.client.open_stream(), Collector()
            second.set_protocol(second_seen)
            second.write(b"x")
            await until(lambda: bool(second_seen.data))
            far.client_carrier.inbox.put_nowait(None)
            assert type(await within(second_seen.lost)) is StreamReset, "the near session lives"
            await until(lambda: len(results) == 2)
            assert (type(results[1].error), results[1].failed) == (SessionDead, "right")
            assert near.client.connected

    asyncio.run(story())
