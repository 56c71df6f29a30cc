"""A listener takes its port at once, or says who to blame."""

from __future__ import annotations

import asyncio
import socket

import pytest

from inference_fleet.backends.serving import PortTaken, listen
from inference_fleet.settings.loopback import LOOPBACK


def test_nobody_is_refused_from_the_moment_a_listener_exists() -> None:
    with listen(LOOPBACK, 0) as listener, socket.create_connection(listener.getsockname()):
        pass


def test_a_taken_port_is_an_error_by_name() -> None:
    with listen(LOOPBACK, 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(PortTaken, match=f"{LOOPBACK}:{port}"):
            listen(LOOPBACK, port)


def test_a_small_answer_is_sent_at_once_and_not_kept_for_more() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[asyncio.Transport] = loop.create_future()

        class Accepting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                assert isinstance(transport, asyncio.Transport)
                accepted.set_result(transport)

        server = await loop.create_server(Accepting, sock=listen(LOOPBACK, 0))
        with socket.create_connection(server.sockets[0].getsockname()):
            transport = await accepted
            sock = transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "small answers wait for others"
            transport.close()
        server.close()
        await server.wait_closed()

    asyncio.run(story())
