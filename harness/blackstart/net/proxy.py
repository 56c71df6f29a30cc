"""A TCP link in a process of its own: passes bytes to one target until it is told to refuse, swallow, reset or be slow."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from blackstart.core.line import Line
from blackstart.core.shape import BadShape, Shape
from blackstart.net.proxy_control import TOKEN_VARIABLE, Command, serve_control
from blackstart.net.proxy_pipe import Side, reset
from blackstart.net.proxy_probe import Probes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blackstart.net.proxy_way import Way

_CONNECT_S = 5.0


class Mode(StrEnum):
    """What a link does with connections that come from now on."""

    PASS = "pass"  # noqa: S105 - not a password
    REFUSE = "refuse"  # nobody listens: the kernel answers with a reset, as after a crash
    BLACKHOLE = "blackhole"  # accepted, never answered
    RESET = "reset"  # accepted, then reset


class _Client(Side):
    def __init__(self, link: LinkServer) -> None:
        super().__init__()
        self.link = link
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.link.arrived(self)

    def lost(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self.link.clients.discard(self)


class LinkServer:
    """The connections of one link. All methods run on its loop."""

    def __init__(self, *, host: str, port: int, target: tuple[str, int]) -> None:
        self.clients: set[_Client] = set()
        self.mode = Mode.PASS
        self.counts = {"passed": 0, "swallowed": 0, "reset": 0, "failed": 0}
        self.lines = {"up": Line(), "down": Line()}  # towards the target, and back
        self._ways: WeakSet[Way] = WeakSet()
        self._address = (host, port)
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()

    async def become(self, mode: Mode) -> None:
        """Change what happens to new connections; live ones are told by `each`."""
        async with self._changing:
            if mode is Mode.REFUSE and self._server is not None:
                self._server.close()
                self._server = None
            elif mode is not Mode.REFUSE and self._server is None:
                loop = asyncio.get_running_loop()
                self._server = await loop.create_server(lambda: _Client(self), *self._address, backlog=1024)
            self.mode = mode

    def arrived(self, client: _Client) -> None:
        """A connection was accepted."""
        self.clients.add(client)
        if self.mode is Mode.PASS and client.transport is not None:
            client.transport.pause_reading()  # until it is joined: what is read before then would be held by nobody's bound
            client.task = asyncio.get_running_loop().create_task(self._pass_on(client))
            self._tasks.add(client.task)
            client.task.add_done_callback(self._tasks.discard)
        elif client.transport is not None and self.mode is Mode.RESET:
            self.counts["reset"] += 1
            reset(client.transport)
        else:
            self.counts["swallowed"] += 1
            client.discard()

    def each(self, act: Callable[[Side], None]) -> int:
        """Do something to both sides of every live connection; how many there were."""
        pairs = [(client, client.other) for client in self.clients if client.other is not None]
        for pair in pairs:
            for side in pair:
                act(side)
        return len(pairs)

    def reshape(self, shapes: Mapping[str, Shape]) -> None:
        """Another delay and rate for the directions named, for what is under way too."""
        for name, shape in shapes.items():
            self.lines[name].reshape(shape, time.monotonic_ns())
        for way in list(self._ways):
            way.fit()
            way.look()

    def join(self, client: Side, target: Side) -> None:
        """Bytes go across from here on, each direction on its line."""
        self._ways.add(client.travel(target, self.lines["up"]))
        self._ways.add(target.travel(client, self.lines["down"]))
        client.join(target)

    async def _pass_on(self, client: _Client) -> None:
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, target = await asyncio.get_running_loop().create_connection(Side, *self._target)
        except (OSError, TimeoutError):
            self.counts["failed"] += 1
            if client.transport is not None:
                reset(client.transport)
            return
        self.counts["passed"] += 1
        self.join(client, target)


def _tear(side: Side) -> None:
    if side.transport is not None:
        reset(side.transport)


def _shapes(command: Command) -> dict[str, Shape]:
    """Every direction that is named, all of them checked before the first is changed."""
    told = command["shapes"]
    unknown = sorted(set(told) - {"up", "down"})
    if unknown:
        raise BadShape(f"{unknown[0]}: is no direction of a link; try: up or down")
    return {name: Shape.from_wire(shape) for name, shape in told.items()}


def handlers(
    link: LinkServer, modes: asyncio.Queue[Mode], probes: Probes
) -> Mapping[str, Callable[[Command], Mapping[str, Any]]]:
    """What may be asked of a link. A mode is taken up at once but in the loop's own time: `status` shows it."""

    def set_mode(command: Command) -> Mapping[str, Any]:
        modes.put_nowait(Mode(command["mode"]))
        return {}

    def reshape(command: Command) -> Mapping[str, Any]:
        link.reshape(_shapes(command))
        return {}

    return {
        "ping": lambda _: {"pid": os.getpid()},
        "mode": set_mode,
        "status": lambda _: {
            "mode": link.mode.value,
            "live": sum(client.other is not None for client in link.clients),
            "counts": dict(link.counts),
            "lines": {
                name: {"shape": line.shape.to_wire(), "passed": line.passed, "held": line.held}
                for name, line in link.lines.items()
            },
        },
        "shape": reshape,
        "probe": lambda command: {"number": probes.start(within_s=float(command["within_s"]))},
        "probed": lambda command: {"seen": probes.result(int(command["number"]))},
        "cut": lambda _: {"count": link.each(_tear)},
        "stall": lambda _: {"count": link.each(Side.hold)},
        "resume": lambda _: {"count": link.each(Side.release)},
    }


async def _run(options: argparse.Namespace, token: str) -> None:
    loop = asyncio.get_running_loop()
    link = LinkServer(host=options.host, port=options.port, target=(options.target_host, options.target_port))
    await link.become(Mode.PASS)
    modes: asyncio.Queue[Mode] = asyncio.Queue()
    probes = Probes(link.lines, link.join)
    control = await serve_control(
        host=options.host, port=options.control_port, token=token, handlers=handlers(link, modes, probes)
    )
    sys.stderr.write(f"link: {options.host}:{options.port} to {options.target_host}:{options.target_port}\n")

    async def change() -> None:
        while True:
            await link.become(await modes.get())

    changing = loop.create_task(change())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, changing.cancel)
    try:
        await changing
    except asyncio.CancelledError:
        link.each(_tear)
    probes.close()
    control.close()


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM; exit status 0 then, 2 on bad settings."""
    parser = argparse.ArgumentParser(prog="python -m blackstart.net.proxy", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--control-port", type=int, required=True)
    parser.add_argument("--target-host", default="127.0.0.1")
    parser.add_argument("--target-port", type=int, required=True)
    options = parser.parse_args(argv)
    token = os.environ.pop(TOKEN_VARIABLE, "")
    if not token:
        parser.error(f"{TOKEN_VARIABLE} is empty: nobody could control this link")
    asyncio.run(_run(options, token))
    return 0


if __name__ == "__main__":
    sys.exit(main())
