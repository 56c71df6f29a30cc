"""No replica ever connects to a worker: seen from the kernel, with a connect that the same probe must see."""

from __future__ import annotations

import re
import socket
from functools import partial
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.core.matchers import containing

if TYPE_CHECKING:
    from pathlib import Path

    from blackstart.fleet import Fleet

CONNECT = re.compile(r"connect\(\d+, \{sa_family=AF_INET6?, .*?sin6?_port=htons\((\d+)\)")


@pytest.mark.needs("strace")
@pytest.mark.holds("B-50", "B-51")
@pytest.mark.cluster(frontends=2, workers=2)
def test_no_replica_ever_connects_to_a_workers_address(
    fleet: Fleet, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    timings = fleet.timings
    blocks = {port for worker in fleet.workers for port in worker.place.ports}
    traces = []
    for frontend in fleet.frontends:
        trace = tmp_path / f"{frontend.name}.strace"
        tracer = fleet.spawner.spawn(
            node=f"strace-{frontend.index}",
            argv=["strace", "-f", "-e", "trace=connect", "-o", str(trace), "-p", str(frontend.pid)],
            log_dir=fleet.run.spec_dir(fleet.spec),
            spec=fleet.spec,
        )
        request.addfinalizer(partial(tracer.kill, within=timings.shutdown_s))
        tracer.log.wait_for("attached", within=timings.start_s)
        traces.append(trace)
    # everything that reaches a worker: its registration and its dial, chat both ways, a re-home, and chat after it
    before = fleet.wait_owner(1, 0).epoch
    fleet.prefer(0)
    fleet.worker(1).restart()
    fleet.wait_ready()
    assert fleet.wait_owner(1, 0).epoch > before, "the new process did not dial under the trace"
    for via in (0, 1):
        for worker in (0, 1):
            chat = fleet.chat(via=via, model=f"babbler-{worker}")
            assert chat.ok, str(chat)
    fleet.move(1, to=1)
    assert fleet.chat(via=0, model="babbler-1").route == "relayed"
    # the control: a replica does connect to a port that is named to it as a peer's, and the probe sees that
    budget = f"{timings.stream_open_s * 500:.0f}"  # half of what opening a stream may take
    with socket.create_server(("127.0.0.1", 0)) as canary:
        canary_port = int(canary.getsockname()[1])
        fleet.records.rows(
            "UPDATE instances SET address = %(address)s WHERE id = 'frontend-1'",
            address=f"127.0.0.1:{canary_port}",
        )
        asked = fleet.open_chat(via=0, model="babbler-1", headers={"X-Blackstart-Budget-Ms": budget})
        eventually(
            lambda: canary_port in _connects(traces), True, within=timings.stream_open_s, watch=fleet.watch
        )
        asked.hang_up()
    # and of each replica its own connect to the other was seen: a trace that shows nothing would prove nothing
    for trace, other in zip(traces, reversed(fleet.frontends), strict=True):
        eventually(
            lambda trace=trace: _connects([trace]),  # type: ignore[misc]  # bound now
            containing(other.port),
            within=timings.stream_open_s,
            watch=fleet.watch,
        )
    seen = _connects(traces)
    assert not seen & blocks, f"a replica connected to a worker's port: {sorted(seen & blocks)}"


def _connects(traces: list[Path]) -> set[int]:
    return {int(port) for trace in traces for port in CONNECT.findall(trace.read_text(errors="replace"))}
