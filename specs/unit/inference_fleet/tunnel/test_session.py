from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from inference_fleet.settings import Deadline
from inference_fleet.tunnel import Joint, Limits, Session, SessionDead, StreamLimit, StreamReset, read_frame
from inference_fleet.tunnel.echo import echo_stream as echo
from inference_fleet.tunnel.loopback import connect_loopback
from inference_fleet.tunnel.yamux.wire import ACK, DATA, GO_AWAY, INITIAL_WINDOW, RST, SYN, WINDOW, pack

from .linked import TIMINGS, Collector, linked, until, within
from .piped import pipe, piped
from .services import service

if TYPE_CHECKING:
    from inference_fleet.tunnel import Stream

FEW = 4
QUICK = replace(
    TIMINGS,
    keepalive_interval_s=TIMINGS.keepalive_interval_s / 10,
    keepalive_timeout_s=TIMINGS.keepalive_timeout_s / 10,
)


STALLING = replace(TIMINGS, splice_stall_s=TIMINGS.splice_stall_s / 5)


def _open(session: Session) -> tuple[Stream, Collector]:
    stream, seen = session.open_stream(), Collector()
    stream.set_protocol(seen)
    return stream, seen


async def _parked(stream: Stream, until: asyncio.Event | None = None) -> None:
    """A handler that does not read and ends when it is told, if it ever is: a session that ends waits for it."""
    stream.pause_reading()
    stream.set_protocol(Collector())
    await (until or asyncio.Event()).wait()


# ---- over a real uvicorn and a real websockets client


@pytest.mark.holds("B-25", "T-16")
def test_bytes_pass_both_ways_over_a_real_websocket_and_half_close_is_kept() -> None:
    async def story() -> None:
        payload = bytes(range(256)) * 8192
        async with linked(on_client_stream=echo) as link:
            stream, seen = _open(link.server)
            assert stream.id % 2 == 0, "the accepting side is the yamux server"
            stream.write(payload)
            stream.write_eof()
            await within(seen.eof)
            await within(seen.lost)
            assert hashlib.sha256(seen.data).digest() == hashlib.sha256(payload).digest()
            assert seen.lost.result() is None
            assert link.server.streams_open == 0

    asyncio.run(story())


def test_the_dialling_side_may_open_streams_as_well() -> None:
    async def story() -> None:
        async with linked(on_server_stream=echo) as link:
            stream, seen = _open(link.client)
            stream.write(b"from below")
            stream.write_eof()
            await within(seen.lost)
            assert (stream.id % 2, bytes(seen.data)) == (1, b"from below")

    asyncio.run(story())


def test_two_hundred_streams_at_once_keep_their_own_bytes() -> None:
    async def one(link_server: Session, number: int) -> bool:
        stream, seen = _open(link_server)
        payload = number.to_bytes(4, "big") * 5000
        stream.write(payload)
        stream.write_eof()
        await within(seen.lost)
        return bytes(seen.data) == payload

    async def story() -> None:
        async with linked(on_client_stream=echo) as link:
            results = await asyncio.gather(*(one(link.server, number) for number in range(200)))
            assert all(results)
            assert (link.server.streams_open, link.client.streams_open) == (0, 0)

    asyncio.run(story())


@pytest.mark.holds("B-31")
def test_a_reset_ends_one_stream_on_both_sides_and_nothing_else() -> None:
    async def story() -> None:
        served: list[Stream] = []

        async def keep(stream: Stream) -> None:
            served.append(stream)
            await echo(stream)

        async with linked(on_client_stream=keep) as link:
            victim, victim_seen = _open(link.server)
            other, other_seen = _open(link.server)
            victim.write(b"x")
            other.write(b"before ")
            await until(lambda: len(victim_seen.data) == 1)
            served[0].abort()
            error = await within(victim_seen.lost)
            assert type(error) is StreamReset
            other.write(b"after")
            other.write_eof()
            await within(other_seen.lost)
            assert bytes(other_seen.data) == b"before after"
            assert link.server.connected

    asyncio.run(story())


@pytest.mark.holds("T-14")
def test_a_reader_that_stops_parks_its_own_stream_and_no_other() -> None:
    async def choose(stream: Stream) -> None:
        await (_parked(stream) if stream.id == 2 else echo(stream))

    async def story() -> None:
        async with linked(on_client_stream=choose) as link:
            slow, slow_seen = _open(link.server)
            slow.write(bytes(4 * INITIAL_WINDOW))
            assert not slow_seen.writable.is_set()
            quick, quick_seen = _open(link.server)
            quick.write(bytes(8 * INITIAL_WINDOW))
            quick.write_eof()
            await within(quick_seen.lost)
            assert len(quick_seen.data) == 8 * INITIAL_WINDOW
            assert slow.get_write_buffer_size() == 3 * INITIAL_WINDOW, "a window's worth went, no more"
            slow.abort()

    asyncio.run(story())


@pytest.mark.holds("B-34", "T-9")
def test_after_go_away_running_streams_finish_and_the_session_reads_disconnected_meanwhile() -> None:
    async def story() -> None:
        async with linked(on_client_stream=echo) as link:
            stream, seen = _open(link.server)
            link.server.go_away("draining")
            assert not link.server.connected
            with pytest.raises(SessionDead, match="going away"):
                link.server.open_stream()
            await within(link.client.wait_leaving())
            assert not link.client.connected
            stream.write(b"still running")
            assert not await link.server.drained(Deadline.after(0))
            stream.write_eof()
            assert await link.server.drained(Deadline.after(TIMINGS.drain_wait_s))
            await within(seen.lost)
            assert bytes(seen.data) == b"still running"
            ending = await within(asyncio.shield(link.client_run))
            assert ending == link.client.ending
            assert link.client.ending is not None
            assert link.client.ending.clean

    asyncio.run(story())


@pytest.mark.holds("B-30", "B-32")
@pytest.mark.parametrize("side", ["client", "server"])
def test_the_abrupt_death_of_the_connection_is_session_death_for_every_stream(side: str) -> None:
    async def story() -> None:
        async with linked(on_client_stream=echo, on_server_stream=echo) as link:
            session = link.server if side == "server" else link.client
            streams = [_open(session) for _ in range(20)]
            for stream, _ in streams:
                stream.write(b"x")
            link.client_carrier.abort()
            errors = [await within(seen.lost) for _, seen in streams]
            assert {type(error) for error in errors} == {SessionDead}
            assert not any(isinstance(error, StreamReset) for error in errors)
            assert not session.connected
            with pytest.raises(SessionDead):
                session.open_stream()
            assert session.ending is not None
            assert not session.ending.clean

    asyncio.run(story())


def test_no_task_outlives_run() -> None:
    async def story() -> None:
        before = asyncio.all_tasks()
        async with linked(on_client_stream=_parked) as link:
            for _ in range(5):
                _open(link.server)
            link.server.go_away()
            await within(link.client.wait_leaving())
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    asyncio.run(story())


def test_run_ends_after_the_last_of_its_handlers_however_long_that_tidies_up() -> None:
    handlers: list[asyncio.Task[None]] = []

    async def tidy(stream: Stream) -> None:
        current = asyncio.current_task()
        assert current is not None
        handlers.append(current)
        try:
            await _parked(stream)
        finally:
            for _ in range(100):
                await asyncio.sleep(0)

    async def story() -> None:
        async with piped(on_client_stream=tidy) as both:
            for _ in range(3):
                _open(both.server)
            await until(lambda: len(handlers) == 3)
            await both.client.close()
            await within(both.client_run)
            assert all(task.done() for task in handlers), "run() ended and left a handler behind"

    asyncio.run(story())


# ---- over memory


def test_cancelling_run_aborts_the_carrier_and_kills_the_streams() -> None:
    async def story() -> None:
        async with piped(on_server_stream=_parked) as both:
            _, seen = _open(both.client)
            both.client_run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await both.client_run
            assert isinstance(await within(seen.lost), SessionDead)
            assert both.client_carrier.aborted
            await within(both.server_run)

    asyncio.run(story())


@pytest.mark.holds("T-12")
def test_cancelling_run_ends_a_splice_whose_stream_is_over_and_whose_service_takes_nothing_of_it() -> None:
    joints: list[Joint] = []

    async def story() -> None:
        over = asyncio.Event()

        async def deaf(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write_eof()
            await over.wait()

        async def joined(stream: Stream) -> Joint:
            target = await connect_loopback("127.0.0.1", port, within_s=TIMINGS.backend_connect_s)
            joints.append(Joint(stream, target, stall_s=TIMINGS.request_s))
            return joints[0]

        async with service(deaf) as port, piped(on_server_stream=joined) as both:
            stream, seen = _open(both.client)
            await until(lambda: bool(joints))
            theirs = both.server._streams[stream.id]
            await within(seen.eof)
            written = 0
            while theirs.is_reading():
                stream.write(bytes(INITIAL_WINDOW // 4))
                written += INITIAL_WINDOW // 4
                await until(functools.partial(_has_come, theirs, joints[0], written))
            stream.write(b"the rest")
            stream.write_eof()
            await until(lambda: both.server.streams_open == 0)
            assert theirs._inbox.length, "the control: nothing is held past the end of the stream"
            assert not _over(joints), "the control: the splice ended by itself"
            both.server_run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await both.server_run
            assert _over(joints), "a splice outlives its session"
            over.set()

    asyncio.run(story())


def _over(joints: list[Joint]) -> bool:
    return all(joint.over for joint in joints)


def _has_come(stream: Stream, joint: Joint, length: int) -> bool:
    """Whether so much of the peer's has been passed on or lies there."""
    return joint.left.passed + stream._inbox.length == length


@pytest.mark.holds("T-8")
def test_a_half_open_link_is_noticed_by_both_sides_and_closes_the_transport() -> None:
    async def story() -> None:
        async with piped(timings=QUICK, on_server_stream=_parked) as both:
            _, seen = _open(both.client)
            await asyncio.sleep(QUICK.keepalive_interval_s)
            assert both.client.connected, "control: answered pings keep it alive"
            both.client_carrier.silent = both.server_carrier.silent = True
            endings = await within(asyncio.gather(both.client_run, both.server_run))
            assert isinstance(endings, list)
            assert all("of a ping" in ending.cause and not ending.clean for ending in endings)
            assert both.client_carrier.aborted
            assert both.server_carrier.aborted
            error = await within(seen.lost)
            assert isinstance(error, SessionDead)
            assert "of a ping" in error.cause

    asyncio.run(story())


def test_pings_are_answered_and_measure_the_round_trip() -> None:
    async def story() -> None:
        async with piped(timings=QUICK) as both:
            await until(lambda: both.client.round_trip_s is not None)
            assert both.client.round_trip_s is not None
            assert 0 <= both.client.round_trip_s < QUICK.keepalive_timeout_s

    asyncio.run(story())


def test_a_carrier_that_takes_nothing_ends_the_session_and_the_reader_goes_on_meanwhile() -> None:
    async def story() -> None:
        quick_writes = replace(TIMINGS, write_stall_s=QUICK.keepalive_timeout_s)
        async with piped(timings=quick_writes, on_server_stream=echo) as both:
            both.server_carrier.stuck = True
            stream, _ = _open(both.client)
            stream.write(b"x" * 1000)
            ending = await within(both.server_run)
            assert ending == both.server.ending
            assert "stopped reading" in str(ending)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("frame", "breach"),
    [
        (b"\x07" + bytes(11), "version"),
        (pack(DATA, 0, 77, 3), "unknown-stream"),
        (pack(WINDOW, SYN, 2, 0), "id-parity"),
    ],
)
def test_a_protocol_error_is_named_told_to_the_peer_and_ends_the_session(frame: bytes, breach: str) -> None:
    async def story() -> None:
        left, right = pipe()
        session = Session(left, client=False, timings=TIMINGS, on_stream=echo)
        run = asyncio.create_task(session.run())
        left.inbox.put_nowait(frame)
        ending = await run
        assert not ending.clean
        assert ending.cause.startswith(f"protocol error: {breach}")
        assert left.sent == pack(GO_AWAY, 0, 0, 1)
        assert left.closed == (1002, breach)
        assert right.inbox.get_nowait() == pack(GO_AWAY, 0, 0, 1)

    asyncio.run(story())


@pytest.mark.parametrize(("code", "words"), [(1, "protocol error"), (2, "internal error")])
def test_a_go_away_with_an_error_code_is_a_death_and_not_a_leave(code: int, words: str) -> None:
    async def story() -> None:
        async with piped() as both:
            _, seen = _open(both.client)
            both.client_carrier.inbox.put_nowait(pack(GO_AWAY, 0, 0, code))
            error = await within(seen.lost)
            assert isinstance(error, SessionDead)
            assert words in error.cause
            assert not (await both.client_run).clean

    asyncio.run(story())


def test_a_stream_nobody_serves_is_reset() -> None:
    async def story() -> None:
        async with piped() as both:
            _, seen = _open(both.client)
            assert isinstance(await within(seen.lost), StreamReset)
            assert both.server.connected

    asyncio.run(story())


@pytest.mark.holds("T-13", "T-14")
def test_streams_that_have_not_brought_their_request_are_half_open_and_have_a_cap_of_their_own() -> None:
    async def ask(stream: Stream) -> None:
        await read_frame(stream, deadline=Deadline.after(TIMINGS.request_s))
        await asyncio.Event().wait()

    async def story() -> None:
        left, _ = pipe()
        session = Session(
            left, client=False, timings=TIMINGS, on_stream=ask, limits=Limits(half_open_streams=2)
        )
        run = asyncio.create_task(session.run())
        whole = struct.pack(">I", 1) + b"?"
        opens = [pack(WINDOW, SYN, stream, 0) for stream in (1, 3, 5, 7)]
        left.inbox.put_nowait(b"".join(opens[:3]) + pack(DATA, 0, 3, 4) + whole[:4])
        await until(lambda: pack(WINDOW, RST, 5, 0) in left.sent)
        assert session.streams_open == 2, "opens without a request have all of open_streams"
        left.inbox.put_nowait(pack(DATA, 0, 1, 5) + whole)
        await until(lambda: pack(WINDOW, ACK, 1, 0)[:8] in left.sent)
        left.inbox.put_nowait(opens[3])
        await until(lambda: session.streams_open == 3)
        assert pack(WINDOW, ACK, 3, 0)[:8] not in left.sent, "half a request was taken for one"
        assert pack(WINDOW, RST, 7, 0) not in left.sent
        left.inbox.put_nowait(None)
        await run

    asyncio.run(story())


def test_opening_streams_that_nobody_serves_over_and_over_is_a_flood() -> None:
    async def story() -> None:
        left, _ = pipe()
        session = Session(left, client=False, timings=TIMINGS, limits=Limits(resets_per_second=10))
        run = asyncio.create_task(session.run())
        left.inbox.put_nowait(b"".join(pack(WINDOW, SYN, stream, 0) for stream in range(1, 41, 2)))
        await until(lambda: run.done() or bool(left.sent))
        left.inbox.put_nowait(None)
        assert "reset-flood" in (await run).cause

    asyncio.run(story())


def test_a_handler_that_fails_resets_its_stream_and_not_the_session(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(stream: Stream) -> None:
        raise ZeroDivisionError(f"a bug while serving {stream}")

    async def story() -> None:
        async with piped(on_server_stream=fail) as both:
            _, seen = _open(both.client)
            assert isinstance(await within(seen.lost), StreamReset)
            assert both.server.connected
            assert "a bug while serving" in caplog.text

    asyncio.run(story())


def test_a_failing_carrier_is_named_in_the_ending() -> None:
    class Broken:
        path = "broken"

        async def receive(self) -> bytes | None:
            raise OSError("wire on fire")

        async def send(self, data: bytes) -> None: ...
        async def close(self, code: int = 1000, reason: str = "") -> None: ...
        def abort(self) -> None: ...

    async def story() -> None:
        ending = await Session(Broken(), client=True, timings=TIMINGS).run()
        assert ending.cause == "the connection failed: wire on fire"

    asyncio.run(story())


@pytest.mark.holds("T-12")
def test_the_sessions_backlog_is_bounded_and_the_stream_that_breaks_the_bound_is_reset_by_name() -> None:
    async def story() -> None:
        limits = Limits(stream_backlog=1, session_backlog=INITIAL_WINDOW)
        async with piped(on_server_stream=_parked, limits=limits) as both:
            stream, seen = _open(both.client)
            bystander, bystander_seen = _open(both.client)
            stream.write(bytes(INITIAL_WINDOW))
            stream.write(b"one more")
            error = await within(seen.lost)
            assert isinstance(error, StreamReset)
            assert "session_backlog" in str(error)
            assert both.client._out.backlog == 0
            bystander.write(b"x")
            assert not bystander_seen.lost.done()

    asyncio.run(story())


@pytest.mark.holds("T-14")
def test_streams_that_fill_the_backlog_leave_every_other_its_share_of_it() -> None:
    async def choose(stream: Stream) -> None:
        await (echo(stream) if stream.id == 2 * FEW + 2 else _parked(stream))

    async def story() -> None:
        limits = Limits(session_backlog=FEW * INITIAL_WINDOW)
        async with linked(on_client_stream=choose, limits=limits) as link:
            stalled = [_open(link.server) for _ in range(FEW)]
            for stream, _ in stalled:
                stream.write(bytes(INITIAL_WINDOW))
            await until(lambda: not any(link.server._mux.send_credit(stream.id) for stream, _ in stalled))
            await until(lambda: link.server._out.backlog == 0)
            for stream, _ in stalled:
                stream.write(bytes(limits.stream_backlog))
                stream.write(bytes(INITIAL_WINDOW))
            assert stalled[0][0].room == 0, "the control: nothing of what all have in common is left"
            honest, seen = _open(link.server)
            honest.write(bytes(limits.stream_backlog))
            honest.write_eof()
            await within(seen.lost)
            assert honest.error is None, "reset for what the others hoard"
            assert len(seen.data) == limits.stream_backlog
            for stream, _ in stalled:
                assert stream.error is None
                stream.abort()
            assert link.server._out.backlog == 0
            free = limits.stream_backlog + limits.session_backlog
            assert honest.room == free, "what ended streams had waiting still counts"

    asyncio.run(story())


def _full(session: Session, stream_id: int) -> bool:
    """Whether a parked handler's stream has come and holds all its peer may send."""
    stream = session._streams.get(stream_id)
    return stream is not None and not stream.is_reading() and stream._inbox.length == INITIAL_WINDOW


class Curt(Collector):
    """Has nothing more to say once its peer has said all."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


@pytest.mark.holds("T-12")
@pytest.mark.parametrize("closed_by", ["close", "end of file"])
def test_a_closed_stream_whose_peer_takes_nothing_of_what_is_left_is_reset_at_both_ends_and_says_why(
    closed_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def story() -> None:
        judged = asyncio.Event()
        async with linked(on_client_stream=lambda stream: _parked(stream, judged), timings=STALLING) as link:
            stream = link.server.open_stream()
            stream.set_protocol(Curt())
            stream.write(bytes(2 * INITIAL_WINDOW))
            await until(lambda: _full(link.client, stream.id))
            theirs = link.client._streams[stream.id]
            if closed_by == "close":
                stream.close()
            else:
                theirs.write_eof()
                await until(stream.is_closing)
            assert link.server.streams_open == 1, "the control: what was written is not thrown away at once"
            await until(lambda: link.server.streams_open == 0)
            assert link.server._out.backlog == 0
            await until(lambda: theirs.error is not None)
            assert isinstance(theirs.error, StreamReset)
            assert link.server.connected
            judged.set()

    asyncio.run(story())
    assert "was reset (stalled)" in caplog.text


def test_a_closed_stream_whose_peer_takes_what_is_left_slowly_is_heard_to_its_end() -> None:
    class Sipping(Collector):
        """Takes half a window, then nothing for half of the time in which it must take something."""

        stream: Stream
        due = INITIAL_WINDOW // 2

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if len(self.data) >= self.due:
                self.due += INITIAL_WINDOW // 2
                self.stream.pause_reading()
                pause_s = STALLING.splice_stall_s / 2
                asyncio.get_running_loop().call_later(pause_s, self.stream.resume_reading)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        judged = asyncio.Event()
        # no link is a local one, whose larger window would take all that is left at once
        timings = replace(STALLING, local_round_trip_s=1e-9)
        async with linked(on_client_stream=lambda stream: _parked(stream, judged), timings=timings) as link:
            stream, _ = _open(link.server)
            stream.write(bytes(4 * INITIAL_WINDOW))
            await until(lambda: _full(link.client, stream.id))
            slow = Sipping()
            slow.stream = link.client._streams[stream.id]
            slow.stream.set_protocol(slow)
            stream.close()
            begun = loop.time()
            slow.stream.resume_reading()
            await within(asyncio.wait([slow.eof, slow.lost], return_when=asyncio.FIRST_COMPLETED))
            assert slow.eof.done(), "a slow reader was cut"
            assert len(slow.data) == 4 * INITIAL_WINDOW
            assert loop.time() - begun > STALLING.splice_stall_s, "the control: it was no slow one"
            slow.stream.abort()
            judged.set()

    asyncio.run(story())


def test_limits_are_errors_of_this_side_and_say_which() -> None:
    async def story() -> None:
        async with piped(on_server_stream=_parked, limits=Limits(open_streams=2)) as both:
            for _ in range(2):
                _open(both.client)
            with pytest.raises(StreamLimit, match="open_streams=2"):
                both.client.open_stream()
            assert both.client.connected

    asyncio.run(story())


def test_a_session_runs_once() -> None:
    async def story() -> None:
        async with piped() as both:
            with pytest.raises(RuntimeError, match="runs once"):
                await both.client.run()

    asyncio.run(story())


def test_closing_a_session_that_never_ran_closes_its_carrier() -> None:
    async def story() -> None:
        left, _ = pipe()
        session = Session(left, client=True, timings=TIMINGS)
        await session.close()
        assert left.closed is not None
        assert not session.connected

    asyncio.run(story())
