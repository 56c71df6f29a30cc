"""What `docs/protocol-vectors.json` says of the relay request is what a replica reads, writes and refuses."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from specs.unit.inference_fleet.vectors import VECTORS, ScriptedStream, code_of, vectors

from inference_fleet.route import PeerServer, RelayRequest
from inference_fleet.route.relay_frame import FRAME_LIMIT
from inference_fleet.settings import Deadline, Timings
from inference_fleet.telemetry.metrics import Metrics
from inference_fleet.tunnel import StreamRequest, read_frame, write_frame

if TYPE_CHECKING:
    from inference_fleet.route import SessionTable

TIMINGS = Timings.drill()


class _OneTunnel:
    """A table that holds the vectors' worker at the vectors' epoch and nothing else."""

    def get(self, node_id: str) -> SimpleNamespace | None:
        worker = VECTORS["worker"]
        return SimpleNamespace(epoch=worker["seen_epoch"]) if node_id == worker["node"] else None


@vectors("relays")
def test_a_relay_is_read_and_written_as_the_page_says(vector: dict[str, Any]) -> None:
    said = ScriptedStream(bytes.fromhex(vector["hex"]))
    deadline = Deadline.after(TIMINGS.relay_frame_s)
    payload = asyncio.run(read_frame(said.as_stream, limit=FRAME_LIMIT, deadline=deadline))
    relay = RelayRequest(vector["from"], StreamRequest(**vector["request"]))
    assert RelayRequest.decode(payload, peer=vector["peer"]) == relay
    told = ScriptedStream()
    write_frame(told.as_stream, relay.encode(), limit=FRAME_LIMIT)
    assert told.told.hex() == vector["hex"]


@vectors("relays_refused")
def test_an_owner_refuses_with_the_code_the_page_names(vector: dict[str, Any]) -> None:
    stream = ScriptedStream(bytes.fromhex(vector["hex"]))
    server = PeerServer(table=cast("SessionTable", _OneTunnel()), timings=TIMINGS, metrics=Metrics())
    asyncio.run(server._relay(vector["peer"], stream.as_stream))
    assert code_of(bytes(stream.told)) == vector["refusal"]
    assert stream.closed
