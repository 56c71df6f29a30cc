"""Our end as the one that opens streams, against a yamux peer nobody here wrote: one check a process, one verdict line.

The peer does what the first line of a stream says: `echo`, `give N` (reads to the end, then answers with the hash of
what it read, N bytes and their hash), `hold` (reads nothing until `release`), `parked ID`, `go-away`, `refused`.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import math
import os
import random
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from inference_fleet.settings import Deadline, Timings
from inference_fleet.tunnel import Session, SessionDead, StreamReset
from inference_fleet.tunnel.tcp import TcpCarrier

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable

    from inference_fleet.tunnel import Ending, Stream

LARGEST: Final = 64 << 20
WINDOW: Final = 256 << 10
CHUNK: Final = 64 << 10
DIGEST: Final = hashlib.sha256().digest_size
LOOK_S: Final = 0.01


class Reply(asyncio.Protocol):
    """What comes back on one stream: its length, its first and last bytes, and its hash without the last ones."""

    def __init__(self, stream: Stream) -> None:
        loop = asyncio.get_running_loop()
        self.stream = stream
        self.length = 0
        self.first = b""
        self.last = b""
        self.hash = hashlib.sha256()
        self.at_fin: int | None = None
        self.error: Exception | None = None
        self.some = asyncio.Event()
        self.lost: asyncio.Future[None] = loop.create_future()
        self._room = asyncio.Event()
        self._room.set()
        stream.set_protocol(self)

    def data_received(self, data: bytes) -> None:
        self.length += len(data)
        whole = self.last + data
        if len(self.first) < DIGEST:
            self.first = (self.first + data)[:DIGEST]
        self.hash.update(whole[:-DIGEST])
        self.last = whole[-DIGEST:]
        self.some.set()

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self._room.set()
        self.lost.set_result(None)

    async def send(self, data: bytes) -> None:
        for at in range(0, len(data), CHUNK):
            await self._room.wait()
            self.stream.write(data[at : at + CHUNK])

    async def finish(self) -> None:
        """Close our half and wait for the end of the other; a stream that ended badly raises its error."""
        self.at_fin = self.length
        self.stream.write_eof()
        await self.lost
        if self.error is not None:
            raise self.error

    def same_as(self, payload: bytes) -> None:
        self.hash.update(self.last)
        _want(
            self.length == len(payload) and self.hash.digest() == hashlib.sha256(payload).digest(),
            f"stream {self.stream.id}: {self.length} bytes came back of {len(payload)}, or not the same ones",
        )


class Caller:
    """One session and the checks that run over it."""

    def __init__(self, session: Session, run: asyncio.Task[Ending], options: argparse.Namespace) -> None:
        self.session = session
        self.run = run
        self.options = options
        self.random = random.Random(f"{options.check} {options.seed}")  # noqa: S311  # content, not a secret

    def open(self, verb: str) -> Reply:
        reply = Reply(self.session.open_stream())
        reply.stream.write(f"{verb}\n".encode())
        return reply

    async def ask(self, verb: str) -> None:
        """Have the peer do something; it answers with a word once it is done."""
        reply = self.open(verb)
        await reply.finish()
        _want(reply.length > 0, f"no answer to {verb!r}")

    async def echo(self, payload: bytes, *, verb: str = "echo") -> None:
        reply = self.open(verb)
        await reply.send(payload)
        await reply.finish()
        reply.same_as(payload)

    async def give(self, up: int, down: int) -> Reply:
        payload = self.random.randbytes(up)
        reply = self.open(f"give {down}")
        await reply.send(payload)
        await reply.finish()
        _want(reply.length == down + 2 * DIGEST, f"stream {reply.stream.id}: {reply.length} bytes for {down}")
        _want(
            reply.first == hashlib.sha256(payload).digest(),
            f"stream {reply.stream.id}: the peer read other bytes",
        )
        return reply

    async def start(self, count: int, size: int) -> list[Callable[[], Coroutine[Any, Any, None]]]:
        """Echoes in the middle: half is sent, the first of it is back. Each of what is given finishes one."""
        running: list[Callable[[], Coroutine[Any, Any, None]]] = []
        for _ in range(count):
            payload = self.random.randbytes(size)
            reply = self.open("echo")
            await reply.send(payload[: size // 2])
            await reply.some.wait()

            async def rest(reply: Reply = reply, payload: bytes = payload) -> None:
                await reply.send(payload[size // 2 :])
                await reply.finish()
                reply.same_as(payload)

            running.append(rest)
        return running

    # ---- the checks

    async def content(self) -> str:
        """Many streams at once, a size of its own each way."""
        up, down = (_draw(self.random, self.options.streams, self.options.bytes) for _ in range(2))
        await _together(self.give(*sizes) for sizes in zip(up, down, strict=True))
        mebibytes = [f"{sum(sizes) / (1 << 20):.1f} MiB" for sizes in (up, down)]
        return f"{len(up)} streams at once, up to {max(up + down)} bytes, {' and '.join(mebibytes)} each way, by hash"

    async def half_close(self) -> str:
        """The peer answers nothing before our end of file, and everything after it."""
        reply = await self.give(2 * WINDOW, 2 * WINDOW)
        _want(reply.at_fin == 0, "the answer began before the end of the request")
        return f"all {reply.length} bytes came after our half was closed"

    async def reset(self) -> str:
        """A stream is reset in its middle; those beside it and those after it notice nothing."""
        running = await self.start(8, WINDOW)
        victim = self.open("echo")
        await victim.send(self.random.randbytes(WINDOW))
        await victim.some.wait()
        victim.stream.abort()
        await victim.lost
        _want(victim.error is None, f"our own reset was told as {victim.error!r}")
        await _together(rest() for rest in running)
        await self.echo(self.random.randbytes(WINDOW))
        return f"one stream after {victim.length} bytes; {len(running)} beside it and one after it came back whole"

    async def backlog(self) -> str:
        """More streams than the peer takes: it resets the rest, data and all, and serves what it took."""
        results = await asyncio.gather(
            *(self.echo(self.random.randbytes(CHUNK // 16)) for _ in range(self.options.streams)),
            return_exceptions=True,
        )
        resets = [one for one in results if isinstance(one, StreamReset)]
        other = [one for one in results if one is not None and not isinstance(one, StreamReset)]
        _want(not other, f"{other[:1]}")
        _want(0 < len(resets) < len(results), f"{len(resets)} of {len(results)} were reset")
        await self.echo(self.random.randbytes(WINDOW))
        return f"{len(resets)} of {len(results)} streams reset by the peer, the others and a later one served"

    async def go_away_said(self) -> str:
        """The peer says go-away: no stream is opened any more, those that run finish, the session ends cleanly."""
        running = await self.start(6, 2 * WINDOW)
        await self.ask("go-away")
        await self.session.wait_leaving()
        try:
            self.session.open_stream()
        except SessionDead:
            await _together(rest() for rest in running)
        else:
            _want(False, "a stream was opened after the peer's go-away")
        ending = await self.run
        _want(ending.clean, f"the session ended with {ending}")
        return f"{len(running)} running streams finished, no new one opened"

    async def go_away_heard(self) -> str:
        """We say it: the peer opens nothing any more, and what runs finishes."""
        running = await self.start(6, 2 * WINDOW)
        witness = self.open("refused")
        self.session.go_away("so the check wants it")
        await witness.finish()
        _want(witness.length > 0, "the peer did not tell that it was refused")
        await _together(rest() for rest in running)
        _want(await self.session.drained(Deadline.after(self.options.within)), "streams were left")
        return f"{len(running)} running streams finished, the peer was refused a new one"

    async def ping(self) -> str:
        """Our ping is answered, and the answer understood."""
        while self.session.round_trip_s is None:
            _want(not self.run.done(), "the session ended")
            await asyncio.sleep(LOOK_S)
        return f"answered in {self.session.round_trip_s * 1e6:.0f} microseconds"

    async def window_stall(self) -> str:
        """The peer reads one stream no more: it parks, and the others go on."""
        payload = self.random.randbytes(16 * WINDOW)
        held = self.open("hold")
        writing = asyncio.ensure_future(held.send(payload))
        await self.ask(f"parked {held.stream.id}")
        await _together(self.echo(self.random.randbytes(WINDOW)) for _ in range(16))
        _want(not writing.done() and not held.length, "the stream went on though nobody read it")
        await self.ask("release")
        await writing
        await held.finish()
        held.same_as(payload)
        return f"16 streams finished while one of {len(payload)} bytes was parked, which then went on"


def _want(holds: bool, text: str) -> None:  # noqa: FBT001  # reads as an assertion, and stays one under -O
    if not holds:
        raise AssertionError(text)


def _draw(source: random.Random, count: int, room: int) -> list[int]:
    """Log-uniform sizes from one byte to 64 MiB that fit into `room` together."""
    sizes = []
    for left_to_draw in range(count, 0, -1):
        limit = min(LARGEST, room - left_to_draw + 1)
        sizes.append(int(math.exp(source.random() * math.log(limit))))
        room -= sizes[-1]
    source.shuffle(sizes)
    return sizes


async def _together(parts: Iterable[Coroutine[Any, Any, object]]) -> None:
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(part)


@asynccontextmanager
async def _connection(role: str, host: str, port: int) -> AsyncIterator[TcpCarrier]:
    """As `inference_fleet.tunnel.echo` has it: the server listens and says where, the client connects."""
    if role == "client":
        yield TcpCarrier(*await asyncio.open_connection(host, port))
        return
    came: asyncio.Future[TcpCarrier] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda *both: came.set_result(TcpCarrier(*both)), host, port)
    try:
        _say(f"listening on {host}:{server.sockets[0].getsockname()[1]}")
        yield await came
    finally:
        server.close()


async def _play(options: argparse.Namespace) -> str:
    host, _, port = options.tcp.rpartition(":")
    async with asyncio.timeout(options.within), _connection(options.role, host, int(port)) as carrier:
        session = Session(
            carrier,
            client=options.role == "client",
            timings=Timings.from_environ(os.environ),
            on_stream=_unwanted,
        )
        run = asyncio.ensure_future(session.run())
        try:
            check = getattr(Caller(session, run, options), options.check.replace("-", "_"))
            detail: str = await check()
        finally:
            await session.close()
            await run
    return detail


async def _unwanted(stream: Stream) -> None:
    """The peer opens streams only to see them refused; one that came before our go-away is closed again."""
    stream.close()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


CHECKS: Final = tuple(
    name.replace("_", "-")
    for name in (
        "content",
        "half_close",
        "reset",
        "backlog",
        "go_away_said",
        "go_away_heard",
        "ping",
        "window_stall",
    )
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="caller", allow_abbrev=False)
    parser.add_argument("--role", required=True, choices=("client", "server"))
    parser.add_argument("--tcp", required=True)
    parser.add_argument("--check", required=True, choices=CHECKS)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--within", type=float, required=True)
    _say(f"HELD {asyncio.run(_play(parser.parse_args()))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
