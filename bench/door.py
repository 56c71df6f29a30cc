"""The one thing a bench's replica has that no other has: a TCP listener each of whose connections is a stream to a worker."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from typing import TYPE_CHECKING, Final

from inference_fleet.route import RouteError, StreamParts, WorkerRefused
from inference_fleet.settings import Deadline
from inference_fleet.tunnel import TAG_BACKEND, Joint
from inference_fleet.tunnel.local import LocalTransport
from inference_fleet.tunnel.loopback import Parked

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_fleet.frontend.replica import Replica
    from inference_fleet.roster.frontend import Candidate

_BACKLOG: Final = 1024
_log = logging.getLogger("bench.door")


class Door:
    """Splices what is accepted on one port to the process that serves one model, by `WorkerDialer.open`."""

    def __init__(self, replica: Replica, *, model: str) -> None:
        self.model = model
        self.routes: Counter[str] = Counter()
        self._replica = replica
        self._candidate: Candidate | None = None
        self._passing: set[asyncio.Task[None]] = set()

    def open(self, port: int) -> Callable[[], None]:
        """Listen; what is returned stops it.

        Accepted by hand and not by an asyncio server, whose task for each caller would be counted as the tunnel's.
        """
        loop = asyncio.get_running_loop()
        listening = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        listening.setblocking(False)
        loop.add_reader(listening, self._accept, listening)

        def close() -> None:
            loop.remove_reader(listening)
            listening.close()

        return close

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_BACKLOG):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            sock.setblocking(False)
            self.enter(LocalTransport(sock, Parked()))

    def enter(self, transport: asyncio.Transport) -> None:
        """A caller came."""
        task = asyncio.get_running_loop().create_task(self._pass_on(transport), name=f"door {self.model}")
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)

    async def candidate(self) -> Candidate:
        """The process that serves the model, looked up once."""
        if self._candidate is None:
            found = await self._replica.roster.candidates(self.model)
            if not found:
                raise LookupError(f"nobody serves {self.model} yet")
            self._candidate = found[0]
        return self._candidate

    async def _pass_on(self, transport: asyncio.Transport) -> None:
        timings = self._replica.settings.timings
        try:
            candidate = await self.candidate()
            parts = StreamParts(
                tag=TAG_BACKEND,
                target=f"127.0.0.1:{candidate.port}",
                process_key=candidate.process_key,
            )
            deadline = Deadline.after(timings.request_s)
            opened = await self._replica.dialer.open(candidate.node_id, parts, deadline=deadline)
        except (LookupError, RouteError, WorkerRefused) as error:
            _log.warning("a caller of %s is hung up on: %s", self.model, error)
            transport.abort()
            return
        except BaseException:
            transport.abort()
            raise
        self.routes[opened.route] += 1
        Joint(transport, opened.stream, stall_s=timings.splice_stall_s)
