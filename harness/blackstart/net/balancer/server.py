"""The balancer itself: reads each request's head, lets the rules decide, then moves bytes and understands nothing more.

| a client that                  | is told            | and counted as |
|--------------------------------|--------------------|----------------|
| sends a head past the bound     | 431, closed        | `bad`          |
| is slower with it than `head_s` | 408, closed        | `bad`          |
| sends no HTTP/1                 | 400, closed        | `bad`          |
| says nothing and leaves         | nothing            | not a request  |
| finds every backend refusing    | 502, closed        | `no-backend`   |
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from blackstart.net.balancer.head import BadHead, RequestHead, parse_head, split_head
from blackstart.net.balancer.rules import (
    FATE_OF,
    Account,
    Action,
    Dial,
    Fate,
    RoundRobin,
    Rule,
    RuleBook,
    compiled,
)
from blackstart.net.proxy_pipe import Side, reset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MOST_CLIENTS = 4096
_LINGER_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the balancer waits for others, in seconds."""

    head_s: float = 10.0
    connect_s: float = 5.0


class _Client(Side):
    """A client's connection until its head is read."""

    def __init__(self, balancer: BalancerServer) -> None:
        super().__init__()
        self.balancer = balancer
        self.head: asyncio.Future[tuple[bytes, bytes]] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None
        self.path = ""

    @property
    def address(self) -> str:
        """The client's `host:port`."""
        peer = self.transport.get_extra_info("peername") if self.transport else None
        return f"{peer[0]}:{peer[1]}" if peer else "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.balancer.arrived(self)

    def before_joined(self, data: bytearray) -> None:
        if self.head.done():
            self.hold()  # the head is being decided about; the rest can wait in the kernel
            return
        try:
            parts = split_head(data)
        except BadHead as bad:
            self.take_early()
            self.head.set_exception(bad)
            return
        if parts is not None:
            self.take_early()
            self.head.set_result(parts)

    def ended_before_joined(self) -> None:
        if not self.head.done():
            self.head.set_exception(ConnectionError("the client ended before its head did"))

    def lost(self) -> None:
        if not self.head.done():
            self.head.set_exception(ConnectionError("the client left before its head was there"))
        elif self.task is not None:
            self.task.cancel()
        self.balancer.left(self)


class BalancerServer:
    """Connections, rules and backends of one balancer. All methods run on its loop."""

    def __init__(self, backends: Iterable[tuple[str, int]], *, patience: Patience) -> None:
        self.backends = RoundRobin(backends)
        self.rules = RuleBook()
        self.account = Account()
        self._patience = patience
        self._clients: set[_Client] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Accept clients from here on."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: _Client(self), host, port, backlog=1024)

    def live(self, pattern: str) -> int:
        """Connections that go through now and whose path matches."""
        return len(self._matching(pattern))

    def cut(self, pattern: str) -> int:
        """Tear every live connection whose path matches, on both sides; says how many."""
        return self._each(pattern, reset_pair)

    def stall(self, pattern: str) -> int:
        """Move no more bytes of matching connections, without ending them: half-open, as a dead network leaves them."""
        return self._each(pattern, lambda client: _both(client, Side.hold))

    def resume(self, pattern: str) -> int:
        """The end of `stall`."""
        return self._each(pattern, lambda client: _both(client, Side.release))

    # --- a client's life

    def arrived(self, client: _Client) -> None:
        """A connection was accepted."""
        if len(self._clients) >= MOST_CLIENTS and client.transport is not None:
            client.head.cancel()
            self._count_bad(client, f"more than {MOST_CLIENTS} connections at once")
            reset(client.transport)
            return
        self._clients.add(client)
        task = asyncio.get_running_loop().create_task(self._serve(client))
        client.task = task
        self._tasks.add(task)
        task.add_done_callback(self._served)

    def left(self, client: _Client) -> None:
        """A connection is gone."""
        self._clients.discard(client)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # A mistake of ours must be seen, and must not take the others' connections with it.
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a client's task failed", "exception": task.exception(), "task": task}
            )

    async def _serve(self, client: _Client) -> None:
        try:
            async with asyncio.timeout(self._patience.head_s):
                raw, rest = await client.head
            head = parse_head(raw)
        except ConnectionError:
            if client.transport is not None:
                client.transport.close()
            return
        except TimeoutError:
            bad = BadHead(408, f"no whole head within {self._patience.head_s:g} s")
            self._refuse_bad(client, bad)
            return
        except BadHead as bad:
            self._refuse_bad(client, bad)
            return
        client.path = head.path
        rule = self.rules.decide(head)
        if rule is not None:
            self._obey(client, head, rule)
        else:
            await self._pass_on(client, head, rest)

    def _obey(self, client: _Client, head: RequestHead, rule: Rule) -> None:
        self._count(client, head, FATE_OF[rule.action], rule=rule.id)
        if client.transport is None:
            return
        if rule.action is Action.RESET:
            reset(client.transport)
        elif rule.action is Action.REFUSE:
            _answer(client, rule.status, "refused by a rule of the balancer")
        else:
            client.discard()  # a hole in the network: open until the client gives up

    async def _pass_on(self, client: _Client, head: RequestHead, rest: bytes) -> None:
        failures: list[str] = []
        loop = asyncio.get_running_loop()
        for host, port in self.backends.order():
            try:
                async with asyncio.timeout(self._patience.connect_s):
                    _, backend = await loop.create_connection(Side, host, port)
            except (OSError, TimeoutError) as error:
                failures.append(f"{host}:{port}: {str(error) or 'no answer in time'}")
                continue
            self._count(client, head, Fate.PASSED, backend=f"{host}:{port}")
            first = head.rewritten(client=client.address.rpartition(":")[0]) + rest
            client.join(backend, first=first)
            client.release()
            return
        detail = "; ".join(failures) or "there are no backends"
        self._count(client, head, Fate.NO_BACKEND, detail=detail)
        _answer(client, 502, f"no backend: {detail}")

    def _refuse_bad(self, client: _Client, bad: BadHead) -> None:
        self._count_bad(client, bad.reason)
        _answer(client, bad.status, bad.reason)

    def _count_bad(self, client: _Client, reason: str) -> None:
        self.account.add(
            Dial(at=time.monotonic(), client=client.address, method="", path="", fate=Fate.BAD, detail=reason)
        )

    def _count(
        self,
        client: _Client,
        head: RequestHead,
        fate: Fate,
        *,
        backend: str = "",
        rule: int | None = None,
        detail: str = "",
    ) -> None:
        self.account.add(
            Dial(
                at=time.monotonic(),
                client=client.address,
                method=head.method,
                path=head.path,
                fate=fate,
                backend=backend,
                rule=rule,
                detail=detail,
            )
        )

    def _matching(self, pattern: str) -> list[_Client]:
        wanted = compiled(pattern)
        return [client for client in self._clients if client.other is not None and wanted.search(client.path)]

    def _each(self, pattern: str, act: Callable[[_Client], None]) -> int:
        matching = self._matching(pattern)
        for client in matching:
            act(client)
        return len(matching)


def reset_pair(client: Side) -> None:
    """Both sides of a pair see a reset."""
    for side in (client, client.other):
        if side is not None and side.transport is not None:
            reset(side.transport)


def _both(client: Side, act: Callable[[Side], None]) -> None:
    act(client)
    if client.other is not None:
        act(client.other)


def _answer(client: Side, status: int, text: str) -> None:
    if client.transport is None or client.transport.is_closing():
        return
    body = (text + "\n").encode()
    reason = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Refused"
    head = (
        f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\nX-Blackstart-Balancer: {status}\r\n\r\n"
    )
    client.transport.write(head.encode("latin-1") + body)
    if client.transport.can_write_eof():
        client.transport.write_eof()
    # What the client still sends is read and dropped until it ends or the bound passes: closing at once would send a
    # reset that destroys the answer on its way.
    asyncio.get_running_loop().call_later(_LINGER_S, client.transport.close)
    client.discard()
