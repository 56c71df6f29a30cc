"""The carrier on the bare transport, against a peer that says exactly what a spec wants, byte for byte."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from inference_fleet.tunnel import DirectWebSocket, Ending, Session
from inference_fleet.tunnel.direct import READ_BYTES
from inference_fleet.tunnel.outbound import AT_ONCE_BYTES, WriteStalled
from inference_fleet.tunnel.websocket import CloseCode, Opcode, close_payload, frame_head, opened
from inference_fleet.tunnel.yamux.wire import SYN, WINDOW, pack

from .awaited import Awaited
from .linked import TIMINGS, until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from inference_fleet.tunnel import Stream

KEY = b"\x11\x22\x33\x44"
SOON_S = TIMINGS.write_stall_s / 20


class Peer:
    """The client's side of a connection, in raw bytes; it reads when it is told to and not before."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._loop = asyncio.get_running_loop()

    async def put(self, data: bytes) -> None:
        await within(self._loop.sock_sendall(self._sock, data))

    async def say(self, opcode: Opcode, payload: bytes) -> None:
        await self.put(frame_head(opcode, len(payload), KEY) + opened(memoryview(payload), KEY))

    async def take(self, most: int) -> bytes:
        taken = await within(self._loop.sock_recv(self._sock, most))
        assert isinstance(taken, bytes)
        return taken

    async def hear(self, opcode: Opcode, payload: bytes) -> None:
        expected, heard = frame_head(opcode, len(payload)) + payload, b""
        while len(heard) < len(expected):
            piece = await self.take(len(expected) - len(heard))
            assert piece, f"the connection ended after {heard!r}"
            heard += piece
        assert heard == expected


@asynccontextmanager
async def connected(
    *, client: bool = False, early: bytes = b"", stall_s: float = TIMINGS.write_stall_s
) -> AsyncIterator[tuple[Peer, DirectWebSocket]]:
    """A peer and the accepting side's carrier, as if its handshake were over."""
    ours, theirs = socket.socketpair()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
    carrier = DirectWebSocket(transport, client=client, path="takeover", stall_s=stall_s, early=early)
    theirs.setblocking(False)
    with theirs:
        try:
            yield Peer(theirs), carrier
        finally:
            carrier.abort()


def unsent(carrier: DirectWebSocket) -> int:
    return carrier._transport.get_write_buffer_size()


def fill(carrier: DirectWebSocket) -> None:
    while carrier.can_write:
        carrier.write([bytes(64 * 1024)])


def test_nothing_is_lost_that_came_before_the_session_was_there() -> None:
    async def story() -> None:
        early = frame_head(Opcode.BINARY, 3, KEY) + opened(memoryview(b"abc"), KEY)
        async with connected(early=early[:5]) as (peer, carrier):
            await peer.put(early[5:])
            await peer.say(Opcode.BINARY, b"def")
            awaited = Awaited(carrier)
            heard = b""
            while len(heard) < 6:
                piece = await within(awaited.receive())
                assert isinstance(piece, bytes)
                heard += piece
            assert heard == b"abcdef"

    asyncio.run(story())


def test_a_connection_that_was_lost_before_the_session_came_is_told_to_it() -> None:
    async def story() -> None:
        async with connected() as (_, carrier):
            carrier.abort()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert await within(Awaited(carrier).receive()) is None

    asyncio.run(story())


def test_a_ping_is_answered_with_its_payload() -> None:
    async def story() -> None:
        async with connected() as (peer, carrier):
            Awaited(carrier)
            await peer.say(Opcode.PING, b"are you there")
            await peer.hear(Opcode.PONG, b"are you there")

    asyncio.run(story())


@pytest.mark.holds("T-13")
def test_a_peer_that_pings_and_never_reads_costs_one_answer() -> None:
    async def story() -> None:
        async with connected(stall_s=TIMINGS.request_s) as (peer, carrier):
            Awaited(carrier)
            fill(carrier)
            full = unsent(carrier)
            for number in range(1000):
                await peer.say(Opcode.PING, b"%d" % number)
            await peer.say(Opcode.PING, b"the last")
            await until(lambda: carrier._pong == b"the last")
            assert unsent(carrier) == full, "answers piled up behind a peer that reads nothing"

            async def read_on() -> None:
                heard = b""
                while not heard.endswith(frame_head(Opcode.PONG, 8) + b"the last"):
                    heard = heard[-64:] + await peer.take(1 << 20)

            await within(read_on())  # the control: once it reads, the latest is answered

    asyncio.run(story())


@pytest.mark.holds("T-18")
def test_pings_without_end_are_a_breach_and_the_same_in_two_seconds_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few = 64
    monkeypatch.setattr("inference_fleet.tunnel.websocket.IDLE_FRAMES", few)  # what fits into one read

    async def story() -> None:
        async with connected() as (peer, carrier):
            awaited = Awaited(carrier)
            many = frame_head(Opcode.PONG, 0, KEY) * few
            for _ in range(3):
                await peer.put(many)
                await peer.say(Opcode.BINARY, b"heard")
                assert await within(awaited.receive()) == b"heard", "a peer within its budget was cut"
                carrier._second -= 1  # and a second is over
            await peer.put(many + frame_head(Opcode.PONG, 0, KEY))
            assert await within(awaited.receive()) is None
            assert "frames without payload in a second" in str(awaited.why)

    asyncio.run(story())


@pytest.mark.holds("T-14")
def test_a_read_that_took_long_is_followed_by_shorter_ones_and_a_cheap_one_by_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with connected() as (peer, carrier):
            awaited = Awaited(carrier)
            spent, each = [0.0], [1.0]

            def thread_time() -> float:
                spent[0] += each[0]
                return spent[0]

            monkeypatch.setattr("inference_fleet.tunnel.direct.time.thread_time", thread_time)

            async def hears(word: bytes) -> int:
                await peer.say(Opcode.BINARY, word)
                assert await within(awaited.receive()) == word
                return len(carrier.get_buffer(-1))

            at_first = len(carrier.get_buffer(-1))
            assert at_first < READ_BYTES, "much is read at once of a peer nobody knows yet"
            assert await hears(b"dear") < at_first, "a dear peer was given as long a turn again"
            each[0] = 0.0
            lengths = [await hears(b"cheap") for _ in range(10)]
            assert lengths[-1] == READ_BYTES, "a peer that has become cheap is read in long turns again"

    asyncio.run(story())


def test_a_peer_that_says_goodbye_is_answered_and_the_end_is_an_orderly_one() -> None:
    async def story() -> None:
        async with connected() as (peer, carrier):
            awaited = Awaited(carrier)
            await peer.say(Opcode.CLOSE, close_payload(1001, "moving"))
            await peer.hear(Opcode.CLOSE, close_payload(1001, ""))
            assert await peer.take(1) == b""
            assert await within(awaited.receive()) is None
            assert awaited.why is None

    asyncio.run(story())


def test_a_goodbye_of_ours_waits_for_the_peers_and_drops_what_it_still_said() -> None:
    async def story() -> None:
        async with connected() as (peer, carrier):
            awaited = Awaited(carrier)
            closing = asyncio.create_task(carrier.close(1000, "done"))
            await peer.hear(Opcode.CLOSE, close_payload(1000, "done"))
            await peer.say(Opcode.BINARY, b"too late")
            assert not closing.done()
            await peer.say(Opcode.CLOSE, close_payload(1000, ""))
            await within(closing)
            assert await within(awaited.receive()) is None, "what came after our goodbye was passed on"

    asyncio.run(story())


def test_a_peer_that_breaks_the_framing_is_told_and_named() -> None:
    async def story() -> None:
        async with connected() as (peer, carrier):
            awaited = Awaited(carrier)
            await peer.put(b"\x81\x85" + KEY + b"hello")
            await peer.hear(Opcode.CLOSE, close_payload(CloseCode.UNSUPPORTED_DATA, "a text message"))
            assert await within(awaited.receive()) is None
            assert "broke the WebSocket framing: a text message" in str(awaited.why)

    asyncio.run(story())


@pytest.mark.holds("T-12")
def test_a_peer_that_stops_reading_is_cut_by_name() -> None:
    async def story() -> None:
        async with connected(stall_s=SOON_S) as (_, carrier):
            awaited = Awaited(carrier)
            fill(carrier)
            assert await within(awaited.receive()) is None
            assert isinstance(awaited.why, WriteStalled)

    asyncio.run(story())


def test_a_peer_that_reads_slowly_is_not_cut_and_neither_is_one_that_our_own_loop_kept_waiting() -> None:
    async def story() -> None:
        async with connected(stall_s=TIMINGS.request_s) as (peer, carrier):
            awaited = Awaited(carrier)
            carrier.write([bytes(4 * 1024 * 1024)])
            for _ in range(8):
                before = unsent(carrier)
                while unsent(carrier) == before:
                    assert await peer.take(64 * 1024), "a peer that reads was cut"
                carrier._judge()
            carrier._due -= TIMINGS.request_s * 2  # the judge comes late
            carrier._judge()
            assert not carrier._transport.is_closing()
            assert not carrier.can_write, "it was not behind"
            carrier._judge()  # the control: nothing was read since the last look, and the look is in time
            assert await within(awaited.receive()) is None
            assert isinstance(awaited.why, WriteStalled)

    asyncio.run(story())


def test_the_dialling_side_masks_each_frame_with_a_key_of_its_own() -> None:
    async def story() -> None:
        async with connected(client=True) as (peer, carrier):
            seen = set[bytes]()
            for _ in range(4):
                carrier.write([b"a", b"bc"])
                frame = await peer.take(2 + 4 + 3)
                assert frame[:2] == bytes((0x82, 0x83))
                assert opened(memoryview(frame)[6:], frame[2:6]) == b"abc"
                seen.add(frame[2:6])
            assert len(seen) == 4

    asyncio.run(story())


def test_a_session_closed_before_it_ran_says_goodbye() -> None:
    async def story() -> None:
        async with connected() as (peer, carrier):
            session = Session(carrier, client=False, timings=replace(TIMINGS, keepalive_timeout_s=SOON_S))
            await within(session.close())
            await peer.hear(Opcode.CLOSE, close_payload(1000, "closed"))
            assert await peer.take(1) == b"", "a peer that never answers the goodbye kept the connection"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("due", "room"), [(200_000, 200_000), (1000, READ_BYTES), (READ_BYTES + 1, READ_BYTES)]
)
def test_a_read_ends_with_the_frame_of_which_much_is_due(due: int, room: int) -> None:
    """Or the payload of each would come in two pieces, the last of them of a few bytes."""

    async def story() -> int:
        async with connected() as (_, carrier):
            Awaited(carrier)
            carrier._share = READ_BYTES
            head = frame_head(Opcode.BINARY, due, KEY)
            assert len(carrier.get_buffer(-1)) == READ_BYTES, "the control: no frame has begun"
            carrier.get_buffer(-1)[: len(head)] = head
            carrier.buffer_updated(len(head))
            return len(carrier.get_buffer(-1))

    came = asyncio.run(story())
    assert came == room, f"with {due} bytes due a read may bring {came}"


@pytest.mark.holds("T-14")
def test_a_session_writes_no_more_than_its_transport_takes() -> None:
    """The rest stays with its streams, whose writers are held back; a peer that reads again gets all of it."""

    async def story() -> None:
        async with connected(stall_s=TIMINGS.request_s) as (peer, carrier):
            session = Session(
                carrier, client=False, timings=replace(TIMINGS, keepalive_interval_s=TIMINGS.request_s)
            )
            running = asyncio.create_task(session.run())
            await asyncio.sleep(0)
            for _ in range(64):
                stream = session.open_stream()
                stream.write(bytes(200 * 1024))
            kept = unsent(carrier)
            assert kept < 64 * 200 * 1024 / 8, f"{kept} bytes lie in the transport"
            heard = 0
            while heard < 64 * 200 * 1024:
                heard += len(await peer.take(1 << 20))
            carrier.abort()
            await within(running)

    asyncio.run(story())


def frames_of(*frames: bytes) -> bytes:
    """One message of a client."""
    body = b"".join(frames)
    return frame_head(Opcode.BINARY, len(body), KEY) + opened(memoryview(body), KEY)


@pytest.mark.holds("T-19")
def test_a_goodbye_is_told_at_once_though_its_sayer_reads_nothing_any_more() -> None:
    async def story() -> None:
        async with connected(stall_s=TIMINGS.request_s) as (peer, carrier):
            awaited = Awaited(carrier)
            while not unsent(carrier):
                carrier.write([bytes(16 * 1024)])
            assert carrier.can_write, "below high water: nothing else would notice"
            await peer.say(Opcode.CLOSE, close_payload(1001, ""))
            assert await within(awaited.receive()) is None
            assert unsent(carrier), "the control: it still waits to be flushed"

    asyncio.run(story())


def test_a_session_that_is_cancelled_hears_nothing_while_its_handlers_tidy_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        tidying, go = asyncio.Event(), asyncio.Event()

        async def handler(_stream: Stream) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                tidying.set()
                await go.wait()

        async with connected() as (peer, carrier):
            session = Session(carrier, client=False, timings=TIMINGS, on_stream=handler)
            running = asyncio.create_task(session.run())
            await peer.put(frames_of(pack(WINDOW, SYN, 1, 0)))
            await until(lambda: session.streams_open == 1)
            await asyncio.sleep(0)
            running.cancel()
            await tidying.wait()
            assert not session.connected
            with suppress(OSError):  # the connection may be gone already
                await peer.put(frames_of(pack(WINDOW, SYN, 3, 0)))
            for _ in range(5):
                await asyncio.sleep(0)
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []

    asyncio.run(story())


def test_a_write_that_fails_ends_its_own_session_and_harms_nobody_who_wrote(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with connected() as (_, carrier):
            session = Session(carrier, client=False, timings=TIMINGS)
            running = asyncio.create_task(session.run())
            await asyncio.sleep(0)
            stream = session.open_stream()

            def broken(_parts: Sequence[bytes | memoryview]) -> None:
                raise ValueError("no such buffer")

            monkeypatch.setattr(carrier, "write", broken)
            try:
                stream.write(bytes(AT_ONCE_BYTES))
            except ValueError as error:
                pytest.fail(f"whoever wrote is blamed: {error}")
            ending = await within(running)
            assert isinstance(ending, Ending)
            assert "no such buffer" in ending.cause
        assert "the session failed" in caplog.text

    asyncio.run(story())
