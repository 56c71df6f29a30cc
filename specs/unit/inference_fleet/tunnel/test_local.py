from __future__ import annotations

import asyncio
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from inference_fleet.tunnel.local import BUFFER, LocalTransport, begin_connect

from .linked import Collector, until, within
from .services import refusing_port

if TYPE_CHECKING:
    from collections.abc import Iterator

_MORE_THAN_THE_KERNEL_TAKES = 8 * 1024 * 1024


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection, both its ends: ours does not block, the far one belongs to the story."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours, _ = begin_connect(*server.getsockname()[:2])
        far, _ = server.accept()
    with far:
        far.setblocking(False)
        yield ours, far


class Listener(Collector):
    """A collector that counts how often it was held back and let go."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = 0
        self.resumed = 0

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.resumed += 1


async def drain(far: socket.socket) -> bytes:
    """All the far end is sent, to its end of file."""
    loop, taken = asyncio.get_running_loop(), bytearray()
    while piece := await loop.sock_recv(far, 1 << 20):
        taken += piece
    return bytes(taken)


def test_what_the_kernel_does_not_take_at_once_is_kept_though_its_buffer_is_used_again() -> None:
    async def story() -> None:
        with pair() as (ours, far):
            seen = Listener()
            transport = LocalTransport(ours, seen)
            content = bytes(range(256)) * (_MORE_THAN_THE_KERNEL_TAKES // 256)
            buffer = bytearray(content)
            transport.write(memoryview(buffer))
            assert transport.get_write_buffer_size(), "control: something had to wait"
            assert seen.paused == 1
            buffer[:] = bytes(len(buffer))
            transport.write(b"the end")
            transport.write_eof()
            assert await drain(far) == content + b"the end", "what waited came changed"
            assert (seen.paused, seen.resumed) == (1, 1)
            transport.abort()
            await within(seen.lost)

    asyncio.run(story())


def test_a_close_lets_what_waits_go_first_and_an_abort_resets() -> None:
    async def story(ending: str) -> int | None:
        """How much came before the end of file, or None where there was none."""
        with pair() as (ours, far):
            seen = Listener()
            transport = LocalTransport(ours, seen)
            transport.write(bytes(_MORE_THAN_THE_KERNEL_TAKES))
            getattr(transport, ending)()
            assert transport.is_closing()
            try:
                taken = len(await drain(far))
            except ConnectionResetError:
                taken = None
            assert await within(seen.lost) is None
            return taken

    assert asyncio.run(story("close")) == _MORE_THAN_THE_KERNEL_TAKES
    cut = asyncio.run(story("abort"))
    assert cut is None, f"{cut} bytes and an end of file: what was cut reads as complete"


def test_nothing_is_read_before_it_is_asked_for_and_an_end_of_file_leaves_the_other_direction_open() -> None:
    async def story() -> None:
        with pair() as (ours, far):
            seen = Listener()
            transport = LocalTransport(ours, seen)
            far.sendall(b"early")
            far.shutdown(socket.SHUT_WR)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not seen.data
            transport.resume_reading()
            await within(seen.eof)
            assert bytes(seen.data) == b"early"
            transport.write(b"answer")
            transport.close()
            assert await drain(far) == b"answer"
            await within(seen.lost)

    asyncio.run(story())


def test_a_protocol_with_a_buffer_of_its_own_is_read_into_it() -> None:
    class Own(asyncio.BufferedProtocol):
        def __init__(self) -> None:
            self.buffer = bytearray(3)
            self.data = b""

        def get_buffer(self, sizehint: int) -> bytearray:
            del sizehint
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            self.data += self.buffer[:nbytes]

    async def story() -> None:
        with pair() as (ours, far):
            own = Own()
            transport = LocalTransport(ours, own)
            transport.resume_reading()
            far.sendall(b"12345678")
            await until(lambda: own.data == b"12345678")
            transport.abort()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(story())


def test_a_bug_of_its_protocol_ends_the_connection_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    class Buggy(Listener):
        def data_received(self, data: bytes) -> None:
            raise ZeroDivisionError(bytes(data))

    async def story() -> None:
        with pair() as (ours, far):
            seen = Buggy()
            LocalTransport(ours, seen).resume_reading()
            far.sendall(b"x")
            assert isinstance(await within(seen.lost), ZeroDivisionError)
            with pytest.raises(ConnectionResetError):
                await drain(far)

    asyncio.run(story())
    assert "its protocol failed" in caplog.text


def test_a_peer_that_reset_is_told_as_its_own_error() -> None:
    async def story() -> None:
        with pair() as (ours, far):
            seen = Listener()
            transport = LocalTransport(ours, seen)
            transport.resume_reading()
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            far.close()
            assert isinstance(await within(seen.lost), ConnectionResetError)
            transport.write(b"into nothing")
            transport.close()

    asyncio.run(story())


def test_a_port_that_nobody_has_is_refused_by_its_address() -> None:
    port = refusing_port()
    with pytest.raises(ConnectionRefusedError, match=str(port)):
        begin_connect("127.0.0.1", port)


def test_all_local_connections_are_read_into_one_buffer() -> None:
    given: list[Any] = []

    class Shared(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> memoryview:
            del sizehint
            return BUFFER

        def buffer_updated(self, nbytes: int) -> None:
            given.append(bytes(BUFFER[:nbytes]))

    async def story() -> None:
        with pair() as (ours, far):
            transport = LocalTransport(ours, Shared())
            transport.resume_reading()
            far.sendall(b"in place")
            await until(lambda: given == [b"in place"])
            transport.abort()
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(story())
