"""Windows grow at both ends of a tunnel and at both ends of a peer link, as production makes them."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until

from inference_fleet.tunnel.yamux.windows import LOCAL_WINDOW

from .served import EVENTS_HEAD, backend, chunk, hang, served, worker

if TYPE_CHECKING:
    from pathlib import Path

    from inference_fleet.tunnel import Session

ALL_LOCAL = replace(TIMINGS, local_round_trip_s=TIMINGS.start_s)
"""However busy the machine is, its round trips are those of a local link."""
MUCH = 300 * 1024
ASK: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "messages": [{"role": "user", "content": "x" * MUCH}],
}


def largest(sessions: list[Session]) -> int:
    """The largest receive window there is."""
    return max((state.window for session in sessions for state in session._mux._streams.values()), default=0)


@pytest.mark.holds("B-67", "B-242")
def test_much_that_crosses_two_replicas_grows_the_windows_of_every_receiver(url: str, tmp_path: Path) -> None:
    async def much_and_then_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        event = b"data: " + json.dumps({"text": "y" * MUCH}).encode() + b"\n\n"
        writer.write(EVENTS_HEAD + chunk(event))
        await hang(reader, writer)

    async def story() -> dict[str, int]:
        async with (
            backend(much_and_then_nothing) as process,
            served(url, tmp_path, timings=ALL_LOCAL) as owner,
            served(url, tmp_path, instance_id="b", timings=ALL_LOCAL) as other,
            worker(owner, models={"m": process}) as held,
        ):
            await other.admin()
            tunnel = owner.replica.table.get(held.node_id)
            assert tunnel is not None

            def windows() -> dict[str, int]:
                return {
                    "the tunnel at the replica": largest([tunnel.session]),
                    "the peer link that was dialled": largest(other.replica.peers.sessions),
                    "the peer link that was accepted": largest(owner.replica.peer_server.sessions),
                }

            async with other.http.stream("POST", "/v1/chat/completions", json=ASK) as reply:
                lines = reply.aiter_lines()
                assert len(await anext(lines)) > MUCH
                await until(lambda: process.started == 1)
                return windows()

    grown = asyncio.run(story())
    assert grown == dict.fromkeys(grown, LOCAL_WINDOW), f"not every window grew: {grown}"
