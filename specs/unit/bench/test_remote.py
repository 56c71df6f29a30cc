"""A call in another process gives its answer, or that process's own words."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from bench.remote import Remote, RemoteFailed, answering, calls_server
from inference_fleet.settings import Timings

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = Timings.drill().handshake_s


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def failing() -> None:
    raise ValueError("three is not a number of legs")


def test_an_answer_and_an_error_come_back() -> None:
    async def double(*, number: int) -> int:
        return 2 * number

    async def fail() -> None:
        failing()

    async def story() -> None:
        port = free_port()
        remote = Remote("other", port)
        async with answering(port, {"double": double, "fail": fail}):
            assert await asyncio.to_thread(remote.call, "double", patience_s=PATIENCE, number=21) == 42
            with pytest.raises(RemoteFailed, match=r"other: fail: .*number of legs"):
                await asyncio.to_thread(remote.call, "fail", patience_s=PATIENCE)
            with pytest.raises(RemoteFailed, match="no call 'jump'; there are double, fail"):
                await asyncio.to_thread(remote.call, "jump", patience_s=PATIENCE)

    asyncio.run(story())


def test_threads_answer_alike() -> None:
    calls: dict[str, Callable[..., Any]] = {"double": lambda number: 2 * number, "fail": failing}
    with calls_server(0, calls) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        remote = Remote("other", server.server_address[1])
        try:
            assert remote.call("double", patience_s=PATIENCE, number=21) == 42
            with pytest.raises(RemoteFailed, match="number of legs"):
                remote.call("fail", patience_s=PATIENCE)
        finally:
            server.shutdown()
            thread.join()


def test_nobody_there_is_an_error_that_names_the_call() -> None:
    with pytest.raises(RemoteFailed, match="other: jump: ConnectionRefused"):
        Remote("other", free_port()).call("jump", patience_s=PATIENCE)
