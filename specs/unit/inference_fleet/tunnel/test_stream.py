from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from inference_fleet.settings import Deadline
from inference_fleet.tunnel import DeadlineExpired, SessionDead, StreamReset
from inference_fleet.tunnel.echo import echo_stream as echo
from inference_fleet.tunnel.passing import SMALL_BYTES
from inference_fleet.tunnel.yamux.wire import INITIAL_WINDOW

from .linked import TIMINGS, Collector, soon, until, within
from .piped import Piped, piped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from inference_fleet.tunnel import Stream


WAITING = 128 * 1024
QUICK = replace(TIMINGS, stream_linger_s=TIMINGS.stream_linger_s / 10)


def _story(body: Callable[[Piped, Stream, Stream], Awaitable[None]]) -> None:
    """Run `body(session, our stream, the peer's end of it)`."""

    async def story() -> None:
        arrived: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
        told = asyncio.Event()

        async def keep(stream: Stream) -> None:
            arrived.set_result(stream)
            await told.wait()

        async with piped(on_server_stream=keep, timings=QUICK) as both:
            ours = both.client.open_stream()
            await body(both, ours, await arrived)
            told.set()

    asyncio.run(story())


def test_what_arrives_before_a_protocol_is_kept_and_then_handed_over_in_order() -> None:
    async def body(both: Piped, ours: Stream, theirs: Stream) -> None:
        ours.write(b"early ")
        ours.write(b"bird")
        ours.write_eof()
        await until(lambda: both.server._streams[theirs.id]._inbox.length == 10)
        seen = Collector()
        theirs.set_protocol(seen)
        await within(seen.eof)
        assert bytes(seen.data) == b"early bird"

    _story(body)


@pytest.mark.holds("T-11")
def test_a_paused_reader_holds_at_most_one_window_and_its_peer_keeps_the_rest() -> None:
    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        seen, ours_seen = Collector(), Collector()
        ours.set_protocol(ours_seen)
        theirs.pause_reading()
        theirs.set_protocol(seen)
        ours.write(bytes(3 * INITIAL_WINDOW))
        assert not ours_seen.writable.is_set(), "its protocol is told to pause"
        await until(lambda: theirs._inbox.length == INITIAL_WINDOW)
        await asyncio.sleep(0)
        assert (theirs._inbox.length, len(seen.data)) == (INITIAL_WINDOW, 0)
        assert ours.get_write_buffer_size() == 2 * INITIAL_WINDOW
        theirs.resume_reading()
        await until(lambda: len(seen.data) == 3 * INITIAL_WINDOW)
        assert ours_seen.writable.is_set(), "and to go on"

    _story(body)


def test_a_limit_below_what_waits_pauses_the_writer_at_once() -> None:
    async def body(_both: Piped, ours: Stream, _theirs: Stream) -> None:
        seen = Collector()
        ours.set_protocol(seen)
        ours.write(b"waits")
        assert seen.writable.is_set(), "the control: as yet it is little"
        ours.set_write_buffer_limits(high=0)
        assert not seen.writable.is_set(), "the writer was not told of its new limit"
        await until(seen.writable.is_set)
        assert ours.get_write_buffer_size() == 0, "and is told when the last of it went"

    _story(body)


def test_a_reader_may_pause_between_two_kept_pieces() -> None:
    class OneAtATime(Collector):
        def __init__(self, stream: Stream) -> None:
            super().__init__()
            self.stream = stream

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.stream.pause_reading()

    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        one, two = b"1" * 5000, b"2" * 5000  # smaller ones are put together as they are kept
        ours.write(one)
        await until(lambda: theirs._inbox.length == len(one))
        ours.write(two)
        await until(lambda: theirs._inbox.length == len(one + two))
        seen = OneAtATime(theirs)
        theirs.set_protocol(seen)
        await until(lambda: bytes(seen.data) == one)
        await asyncio.sleep(0)
        assert bytes(seen.data) == one
        theirs.resume_reading()
        await until(lambda: bytes(seen.data) == one + two)

    _story(body)


@pytest.mark.parametrize("times", [1, SMALL_BYTES], ids=["little", "much"])
def test_a_buffer_given_to_write_may_be_reused_at_once(times: int) -> None:
    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        seen = Collector()
        theirs.set_protocol(seen)
        buffer = bytearray(b"first" * times)
        ours.write(buffer)
        buffer[:] = b"WRONG" * times
        ours.write(memoryview(bytearray(b" second")))
        ours.write_eof()
        await within(seen.eof)
        came = bytes(seen.data)
        assert b"WRONG" not in came, "what was written afterwards went out instead"
        assert came == b"first" * times + b" second"

    _story(body)


@pytest.mark.parametrize("size", [1, 2, SMALL_BYTES - 1])
def test_small_writes_that_wait_cost_their_bytes_and_not_their_number(size: int) -> None:
    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        theirs.pause_reading()
        seen = Collector()
        theirs.set_protocol(seen)
        filler = bytes(INITIAL_WINDOW)
        ours.write(filler)
        await until(lambda: theirs._inbox.length == INITIAL_WINDOW)
        words = [bytes([number % 251]) * size for number in range(WAITING // size)]
        tracemalloc.start()
        for word in words:
            ours.write(word)
        cost, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert ours.get_write_buffer_size() == len(words) * size, "the control: all of it waits"
        assert cost < 3 * WAITING, f"{len(words)} writes of {size} bytes that wait cost {cost} bytes"
        theirs.resume_reading()
        await until(lambda: len(seen.data) == INITIAL_WINDOW + len(words) * size)
        assert bytes(seen.data) == filler + b"".join(words)

    _story(body)


def test_writing_after_write_eof_is_an_error_and_after_close_is_ignored() -> None:
    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        ours.write_eof()
        with pytest.raises(RuntimeError, match="write after write_eof"):
            ours.write(b"x")
        theirs.close()
        theirs.abort()
        assert theirs.is_closing()

    _story(body)


def test_an_aborted_stream_ignores_writes_and_tells_its_protocol_of_no_error() -> None:
    async def body(both: Piped, ours: Stream, theirs: Stream) -> None:
        seen, theirs_seen = Collector(), Collector()
        ours.set_protocol(seen)
        theirs.set_protocol(theirs_seen)
        ours.write(b"never")
        ours.abort()
        ours.abort()
        ours.write(b"ignored")
        assert await within(seen.lost) is None
        assert isinstance(await within(theirs_seen.lost), StreamReset)
        assert (both.client.streams_open, both.server.streams_open) == (0, 0)

    _story(body)


def test_close_flushes_then_finishes_and_tells_the_protocol() -> None:
    async def body(both: Piped, ours: Stream, theirs: Stream) -> None:
        seen, theirs_seen = Collector(), Collector()
        ours.set_protocol(seen)
        theirs.set_protocol(theirs_seen)
        ours.write(bytes(INITIAL_WINDOW))
        ours.close()
        assert ours.is_closing()
        assert await within(seen.lost) is None
        await within(theirs_seen.eof)
        assert len(theirs_seen.data) == INITIAL_WINDOW
        assert not theirs_seen.lost.done(), "its own direction is still open"
        theirs.close()
        assert await within(theirs_seen.lost) is None
        await until(lambda: both.client.streams_open == 0)

    _story(body)


def test_a_peer_that_goes_on_sending_to_a_closed_stream_is_reset() -> None:
    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        theirs_seen = Collector()
        theirs.set_protocol(theirs_seen)
        ours.close()
        await within(theirs_seen.eof)
        theirs.write(b"are you still there")
        assert isinstance(await within(theirs_seen.lost), StreamReset)

    _story(body)


def test_unread_bytes_at_close_reset_the_peer_only_after_everything_written_has_gone() -> None:
    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        theirs.write(b"unread")
        await until(lambda: ours._inbox.length == 6)
        ours.write(b"last words")
        ours.close()
        await until(lambda: theirs.error is not None)
        assert isinstance(theirs.error, StreamReset)
        assert await theirs.read_exactly(10, deadline=soon()) == b"last words"

    _story(body)


def test_a_silent_peer_of_a_closed_stream_is_reset_after_the_linger_time() -> None:
    async def body(both: Piped, ours: Stream, theirs: Stream) -> None:
        theirs_seen = Collector()
        theirs.set_protocol(theirs_seen)
        ours.close()
        await within(theirs_seen.eof)
        assert both.client.streams_open == 1, "control: it waits for the peer first"
        async with asyncio.timeout(TIMINGS.stream_linger_s):
            assert isinstance(await theirs_seen.lost, StreamReset)
        assert both.client.streams_open == 0

    _story(body)


def test_an_end_of_file_the_protocol_does_not_keep_open_closes_the_stream() -> None:
    class Plain(Collector):
        def eof_received(self) -> bool:
            super().eof_received()
            return False

    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        plain, ours_seen = Plain(), Collector()
        theirs.set_protocol(plain)
        ours.set_protocol(ours_seen)
        ours.write_eof()
        assert await within(plain.lost) is None
        await within(ours_seen.lost)

    _story(body)


def test_a_protocol_that_fails_costs_its_stream() -> None:
    class Failing(Collector):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError(f"a bug in a protocol, met at {data!r}")

    async def body(both: Piped, ours: Stream, theirs: Stream) -> None:
        seen = Collector()
        ours.set_protocol(seen)
        theirs.set_protocol(Failing())
        ours.write(b"x")
        assert isinstance(await within(seen.lost), StreamReset)
        assert both.server.connected

    _story(body)


def test_a_buffered_protocol_is_filled_through_its_own_buffer() -> None:
    class Buffered(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(7)
            self.data = bytearray()

        def get_buffer(self, sizehint: int) -> bytearray:
            assert sizehint > 0
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.data += self.buffer[:nbytes]

    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        buffered = Buffered()
        theirs.set_protocol(buffered)
        ours.write(bytes(range(100)))
        await until(lambda: bytes(buffered.data) == bytes(range(100)))

    _story(body)


def test_stream_reader_and_writer_of_the_standard_library_run_over_it() -> None:
    async def story() -> None:
        async with piped(on_server_stream=echo) as both:
            stream = both.client.open_stream()
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            protocol.connection_made(stream)
            stream.set_protocol(protocol)
            writer = asyncio.StreamWriter(stream, protocol, reader, asyncio.get_running_loop())
            payload = bytes(range(256)) * 4000

            async def send() -> None:
                for at in range(0, len(payload), 10_000):
                    writer.write(payload[at : at + 10_000])
                    await writer.drain()
                writer.write_eof()

            async with asyncio.TaskGroup() as group:
                group.create_task(send())
                received = await within(reader.read())
            assert received == payload
            writer.close()
            await within(writer.wait_closed())

    asyncio.run(story())


def test_extra_info_names_the_session_and_limits_are_as_in_asyncio() -> None:
    async def body(both: Piped, ours: Stream, _theirs: Stream) -> None:
        assert ours.get_extra_info("session") is both.client
        assert ours.get_extra_info("stream_id") == ours.id
        assert ours.get_extra_info("peername") is None
        assert ours.can_write_eof()
        ours.set_write_buffer_limits(high=100)
        assert ours.get_write_buffer_limits() == (25, 100)
        ours.set_write_buffer_limits(low=10)
        assert ours.get_write_buffer_limits() == (10, 40)
        with pytest.raises(ValueError, match="must be at least"):
            ours.set_write_buffer_limits(high=1, low=2)
        assert ours.is_reading()
        ours.pause_reading()
        assert not ours.is_reading()

    _story(body)


# ---- read_exactly


def test_read_exactly_takes_what_it_asks_for_across_any_pieces() -> None:
    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        for piece in (b"a", b"bcd", b"ef", b"ghij"):
            ours.write(piece)
            await until(lambda: not ours.get_write_buffer_size())
        assert await theirs.read_exactly(2, deadline=soon()) == b"ab"
        assert await theirs.read_exactly(5, deadline=soon()) == b"cdefg"
        reading = asyncio.create_task(theirs.read_exactly(5, deadline=soon()))
        await asyncio.sleep(0)
        ours.write(b"kl")
        assert await reading == b"hijkl"

    _story(body)


def test_read_exactly_ends_with_the_stream_its_death_or_the_deadline() -> None:
    async def body(both: Piped, ours: Stream, theirs: Stream) -> None:
        with pytest.raises(DeadlineExpired, match="0 of 4 bytes"):
            await theirs.read_exactly(4, deadline=Deadline.after(TIMINGS.stream_header_s / 100))
        ours.write(b"abc")
        ours.write_eof()
        with pytest.raises(asyncio.IncompleteReadError) as caught:
            await theirs.read_exactly(4, deadline=soon())
        assert caught.value.partial == b"abc"
        waiting = asyncio.create_task(ours.read_exactly(1, deadline=soon()))
        await asyncio.sleep(0)
        both.client_carrier.abort()
        both.client_carrier.inbox.put_nowait(None)
        with pytest.raises(SessionDead):
            await waiting

    _story(body)


def test_read_exactly_of_a_reset_stream_raises_the_reset() -> None:
    async def body(_both: Piped, ours: Stream, theirs: Stream) -> None:
        waiting = asyncio.create_task(theirs.read_exactly(1, deadline=soon()))
        await asyncio.sleep(0)
        ours.abort()
        with pytest.raises(StreamReset):
            await waiting

    _story(body)
