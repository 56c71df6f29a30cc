"""When what a stream writes leaves on a direct carrier: little with all else of its turn, much at once."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import pytest

from inference_fleet.tunnel import DirectWebSocket, Joint, Session
from inference_fleet.tunnel.outbound import AT_ONCE_BYTES
from inference_fleet.tunnel.yamux.wire import DATA, HEADER_BYTES, INITIAL_WINDOW, WINDOW, pack, unpack

from .linked import TIMINGS, until, within

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

STREAMS = 20
WRITER: ContextVar[str] = ContextVar("WRITER", default="nobody")


class Sent:
    """The messages a carrier was given, and on whose behalf."""

    def __init__(self, carrier: DirectWebSocket, monkeypatch: pytest.MonkeyPatch) -> None:
        self.messages: list[bytes] = []
        self.parts: list[bytes | memoryview] = []
        self.writers: list[str] = []
        self._write = carrier.write
        monkeypatch.setattr(carrier, "write", self._seen)

    def _seen(self, parts: Sequence[bytes | memoryview]) -> None:
        self.parts += parts
        self.messages.append(b"".join(parts))
        self.writers.append(WRITER.get())
        self._write(parts)

    async def first(self) -> bytes:
        """The first message, once there is one; a failed assertion where a turn of the loop brings none."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert self.messages, "nothing went out when the turn was over"
        return self.messages[0]


@asynccontextmanager
async def running(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Session, Sent]]:
    """A session on a transport of its own whose peer is played by nobody."""
    loop = asyncio.get_running_loop()
    server_side: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

    class Accepted(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            server_side.set_result(transport)

    server = await loop.create_server(Accepted, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", port)
        carrier = DirectWebSocket(transport, client=True, path="takeover", stall_s=TIMINGS.write_stall_s)
        session = Session(carrier, client=True, timings=TIMINGS)
        run = asyncio.create_task(session.run())
        far = await within(server_side)
        await asyncio.sleep(0)
        try:
            yield session, Sent(carrier, monkeypatch)
        finally:
            carrier.abort()
            await within(run)
            assert isinstance(far, asyncio.Transport)
            far.abort()


def test_what_streams_write_in_one_turn_goes_out_as_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with running(monkeypatch) as (session, sent):
            for number in range(STREAMS):
                session.open_stream().write(b"word %02d" % number)
            assert not sent.messages, "the turn is not over"
            message = await sent.first()
            said = [message.find(b"word %02d" % number) for number in range(STREAMS)]
            assert len(sent.messages) == 1, f"one turn of {STREAMS} writes made {len(sent.messages)} messages"
            assert -1 not in said, f"not all of the turn is in its message: {said}"
            assert said == sorted(said), f"streams have changed places: {said}"

    asyncio.run(story())


def test_much_leaves_at_once_and_takes_along_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with running(monkeypatch) as (session, sent):
            little, less, much = (session.open_stream() for _ in range(3))
            little.write(b"a word")
            less.write(bytes(AT_ONCE_BYTES - len(b"a word") - 1))
            assert not sent.messages, "the control: what is little waits"
            less.write(b"!")
            assert len(sent.messages) == 1, (
                "what has become much by little and little waits for the turn's end"
            )
            assert b"a word" in sent.messages[0], "what came first was left behind"
            assert less.get_write_buffer_size() == 0
            less.write(bytes(AT_ONCE_BYTES - 1))
            assert len(sent.messages) == 1, "the control: what has gone counts no more"
            much.write(bytes(AT_ONCE_BYTES))
            assert len(sent.messages) == 2, "much waits for the turn's end, and has to be copied for it"
            assert less.get_write_buffer_size() == much.get_write_buffer_size() == 0

    asyncio.run(story())


def test_what_a_turn_sends_is_sent_for_all_and_carries_the_log_fields_of_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with running(monkeypatch) as (session, sent):

            async def write() -> None:
                WRITER.set("the first to write")
                session.open_stream().write(b"hello")

            await asyncio.create_task(write())
            await sent.first()
            assert sent.writers == ["nobody"], f"sent in the name of {sent.writers}"

    asyncio.run(story())


def test_what_was_written_in_the_turn_of_the_close_has_gone_before_streams_are_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with running(monkeypatch) as (session, sent):

            async def hang_up() -> None:
                await until(lambda: session.ending is not None)
                session._carrier.abort()

            far = asyncio.create_task(hang_up())
            session.open_stream().write(b"last words")
            await within(session.close())
            await far
            said = b"".join(sent.messages)
            assert b"last words" in said, "what was written before the close was cut"

    asyncio.run(story())


def test_the_peer_is_told_of_credit_for_much_before_that_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It fills its next frames while these bytes go on; what is little is told of with the rest of its read."""

    async def story(length: int) -> tuple[list[int], list[int]]:
        async with running(monkeypatch) as (session, sent):
            stream = session.open_stream()
            seen_then: list[list[int]] = []

            class Service(asyncio.Protocol):
                def data_received(self, data: bytes) -> None:
                    del data
                    seen_then.append(credits_of(sent.messages))

            stream.set_protocol(Service())
            receiver = session._in
            receiver.heard()
            for _ in range(INITIAL_WINDOW // 2 // length):
                receiver.received(memoryview(pack(DATA, 0, stream.id, length) + bytes(length)), b"")
            receiver.received_all()
            await sent.first()
            return seen_then[-1], credits_of(sent.messages)

    before, after = asyncio.run(story(INITIAL_WINDOW // 2))
    assert sum(after) >= INITIAL_WINDOW // 2, "the control: credit was due"
    assert before == after, "the peer waits for its credit until its bytes have gone on"
    before, after = asyncio.run(story(1024))
    assert sum(after) >= INITIAL_WINDOW // 2
    assert not before, "one read of small pieces is answered by more than one write"


@pytest.mark.parametrize("relayed", [True, False], ids=["relayed", "the control"])
def test_a_relay_hands_on_what_came_without_a_copy_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
    relayed: bool,  # noqa: FBT001 -- parametrised
) -> None:
    """The one copy there is makes the message. Whoever may keep what it is given gets bytes of its own."""

    async def story() -> bool:
        async with running(monkeypatch) as (near, sent), running(monkeypatch) as (far, _):
            to, come_from = near.open_stream(), far.open_stream()

            class Keeper(asyncio.Protocol):
                def data_received(self, data: bytes) -> None:
                    to.write(data)

            if relayed:
                Joint(to, come_from, stall_s=TIMINGS.splice_stall_s)
            else:
                come_from.set_protocol(Keeper())
            read = bytearray(pack(DATA, 0, come_from.id, AT_ONCE_BYTES) + bytes(AT_ONCE_BYTES))
            far._in.heard()
            far._in.received(memoryview(read), b"")
            far._in.received_all()
            assert sum(map(len, sent.messages)) > AT_ONCE_BYTES, "it was handed on"
            return any(isinstance(part, memoryview) and part.obj is read for part in sent.parts)

    as_it_came = asyncio.run(story())
    assert as_it_came is relayed, (
        "copied on its way" if relayed else "a view of a buffer that is read into again"
    )


def credits_of(messages: list[bytes]) -> list[int]:
    """What the window updates in these messages of headers give."""
    headers = [
        unpack(message[at : at + HEADER_BYTES])
        for message in messages
        for at in range(0, len(message), HEADER_BYTES)
    ]
    return [header.length for header in headers if header.type == WINDOW and header.length]
