"""Telling another process of the bench what to do: one JSON object a line over loopback TCP, one answer each."""

from __future__ import annotations

import asyncio
import json
import socket
import socketserver
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LIMIT: Final = 16 * 1024 * 1024
"""The longest line."""

HELLO: Final = b'{"call": "hello", "with": {}}\n'
"""What readiness asks."""

READY: Final = b'"ok"'
"""What every answer that is none of an error holds."""

Calls: TypeAlias = Mapping[str, Callable[..., Any]]
AsyncCalls: TypeAlias = Mapping[str, Callable[..., Awaitable[Any]]]


class RemoteFailed(RuntimeError):
    """The other process could not do it; the text is its own."""


@dataclass(frozen=True)
class Remote:
    """Another process, by the port it takes calls on. Used from any thread: each call is a connection."""

    name: str
    port: int

    def call(self, what: str, /, *, patience_s: float, **arguments: Any) -> Any:
        """Do it there; `RemoteFailed` with the process's own words when it could not, or did not answer in time."""
        line = json.dumps({"call": what, "with": arguments}).encode() + b"\n"
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=patience_s) as sock:
                sock.sendall(line)
                with sock.makefile("rb") as answers:
                    answer = json.loads(answers.readline(LIMIT) or b"{}")
        except (OSError, ValueError) as error:
            raise RemoteFailed(f"{self.name}: {what}: {error!r}; try: read its log") from error
        if "ok" not in answer:
            told = answer.get("error", "it hung up")
            raise RemoteFailed(f"{self.name}: {what}: {told}; try: read its log")
        return answer["ok"]


def serve_calls(port: int, calls: Calls) -> None:
    """Take calls until the process ends, a thread each."""
    with calls_server(port, calls) as server:
        server.serve_forever()


def calls_server(port: int, calls: Calls) -> socketserver.ThreadingTCPServer:
    """A server that takes calls once it is run."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline(LIMIT):
                name, arguments = _asked(line)
                try:
                    answer: dict[str, Any] = {"ok": _found(calls, name)(**arguments)}
                except Exception as error:  # noqa: BLE001 - told to whoever asked, who ends the run by it
                    answer = {"error": repr(error)}
                self.wfile.write(json.dumps(answer).encode() + b"\n")

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    return Server(("127.0.0.1", port), Handler)


@asynccontextmanager
async def answering(port: int, calls: AsyncCalls) -> AsyncIterator[None]:
    """Take calls on this loop for as long as the block runs."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                name, arguments = _asked(line)
                try:
                    answer: dict[str, Any] = {"ok": await _found(calls, name)(**arguments)}
                except Exception as error:  # noqa: BLE001 - told to whoever asked, who ends the run by it
                    answer = {"error": repr(error)}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port, limit=LIMIT)
    try:
        yield
    finally:
        server.close()


def _asked(line: bytes) -> tuple[str, dict[str, Any]]:
    asked = json.loads(line)
    return str(asked["call"]), dict(asked["with"])


def _found(calls: Mapping[str, Callable[..., Any]], name: str) -> Callable[..., Any]:
    if name not in calls:
        raise LookupError(f"no call {name!r}; there are {', '.join(sorted(calls))}")
    return calls[name]
