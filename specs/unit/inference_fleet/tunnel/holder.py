"""A process of its own whose streams nobody reads: prints its port, and for each line on stdin what it holds."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from inference_fleet.settings import Timings
from inference_fleet.tunnel import Session, Stream
from inference_fleet.tunnel.tcp import TcpCarrier

_PRODUCTION = Timings.production()
_PATIENT = replace(_PRODUCTION, keepalive_interval_s=_PRODUCTION.request_s)  # its peers answer no ping
_SESSIONS: list[Session] = []
_KIB = 1024


async def _never_read(stream: Stream) -> None:
    stream.accept()
    await asyncio.Event().wait()


async def _accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    session = Session(TcpCarrier(reader, writer), client=False, timings=_PATIENT, on_stream=_never_read)
    _SESSIONS.append(session)
    await session.run()


def _resident() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * _KIB for line in status.splitlines() if line.startswith("VmRSS"))


def _answer() -> str:
    states = [state for session in _SESSIONS for state in session._mux._streams.values()]
    return f"{len(states)} {sum(state.recv_credit == 0 for state in states)} {_resident()}"


async def main() -> None:
    """Until stdin ends."""
    server = await asyncio.start_server(_accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201  # this is how the spec asks
    while await asyncio.to_thread(sys.stdin.readline):
        print(_answer(), flush=True)  # noqa: T201  # as above


if __name__ == "__main__":
    asyncio.run(main())
