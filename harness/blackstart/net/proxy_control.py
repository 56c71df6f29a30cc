"""How a spec speaks to a network child of its own: one JSON line each way on a loopback socket, with a token.

Shared by the balancer and the link. A command is `{"token", "do", ...}`; the answer is `{"ok": true, ...}` or
`{"ok": false, "error"}`. The token comes to the child through its environment, never through its arguments.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import time
from typing import TYPE_CHECKING, Any

from blackstart.core.deadline import Looks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TOKEN_VARIABLE = "BLACKSTART_CONTROL_TOKEN"  # noqa: S105 - the variable's name, not a token
LARGEST_LINE = 1024 * 1024
_COMMAND_S = 5.0
_LOOK_EVERY_S = 0.005

Command = dict[str, Any]


class ControlError(Exception):
    """The child refused a command, or did not answer; the text says which command and why."""


async def serve_control(
    *, host: str, port: int, token: str, handlers: Mapping[str, Callable[[Command], Mapping[str, Any]]]
) -> asyncio.Server:
    """Listen for commands. Handlers run on the loop and must not wait."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_COMMAND_S):
                line = await reader.readline()
                writer.write(json.dumps(_obey(line, token=token, handlers=handlers)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, TimeoutError, ValueError):
            writer.transport.abort()  # a caller that is slow, gone or sends an endless line harms only itself
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=LARGEST_LINE)


def _obey(
    line: bytes, *, token: str, handlers: Mapping[str, Callable[[Command], Mapping[str, Any]]]
) -> dict[str, Any]:
    try:
        command = json.loads(line)
    except (ValueError, RecursionError):
        return {"ok": False, "error": "not a line of JSON"}
    if not isinstance(command, dict):
        return {"ok": False, "error": "not an object"}
    if not hmac.compare_digest(str(command.get("token", "")).encode(), token.encode()):
        return {"ok": False, "error": "wrong token"}
    handler = handlers.get(str(command.get("do", "")))
    if handler is None:
        return {"ok": False, "error": f"unknown command; try: one of {', '.join(sorted(handlers))}"}
    try:
        return {"ok": True, **handler(command)}
    except (ValueError, KeyError, TypeError) as error:
        return {"ok": False, "error": str(error.args[0] if error.args else error)}


class ControlClient:
    """The caller's side: blocking, a deadline on every command."""

    def __init__(self, *, host: str, port: int, token: str, name: str, within_s: float = _COMMAND_S) -> None:
        self._address = (host, port)
        self._token = token
        self._name = name
        self._within_s = within_s

    def command(self, do: str, **arguments: Any) -> dict[str, Any]:
        """One command and its answer, or `ControlError`."""
        line = json.dumps({"token": self._token, "do": do, **arguments}).encode() + b"\n"
        deadline = time.monotonic() + self._within_s
        try:
            with socket.create_connection(self._address, timeout=self._within_s) as connection:
                connection.sendall(line)
                answer = _read_line(connection, deadline=deadline)
        except OSError as error:
            raise ControlError(
                f"{self._name}: {do}: no answer on {self._address[0]}:{self._address[1]} within"
                f" {self._within_s:g} s ({error}); try: its log"
            ) from error
        try:
            told = json.loads(answer)
        except ValueError as error:
            raise ControlError(f"{self._name}: {do}: the answer is no JSON: {answer[:200]!r}") from error
        if not told.pop("ok", False):
            raise ControlError(f"{self._name}: {do}: {told.get('error', 'refused')}")
        return dict(told)

    def wait_until_answers(self, *, within_s: float, died: Callable[[], str]) -> None:
        """Until the child obeys; `died` says why it never will ("" while it may)."""
        until = time.monotonic() + within_s
        for turn in Looks(until=until, every_s=_LOOK_EVERY_S, clock=time.monotonic, sleep=time.sleep):
            try:
                self.command("ping")
            except ControlError as error:
                why = died() or (str(error) if turn.over else "")
                if why:
                    raise ControlError(f"{self._name}: did not start within {within_s:g} s: {why}") from error
            else:
                return


def _read_line(connection: socket.socket, *, deadline: float) -> bytes:
    received = bytearray()
    while b"\n" not in received:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = connection.recv(65536)
        if not chunk:
            raise ConnectionError("closed before it answered")
        received += chunk
        if len(received) > LARGEST_LINE * 16:
            raise ConnectionError("an answer without an end")
    return bytes(received)
