"""A stream reaches a worker's own processes and nothing beside them, whatever target it names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from blackstart.net import lease_ports
from inference_fleet.route import HeldSession, StreamParts, WorkerRefused
from inference_fleet.settings import Deadline
from inference_fleet.tunnel import Refusal, Session
from inference_fleet.tunnel.worker import SeenEpoch, serve_streams
from inference_fleet.worker.resolver import resolver

from .piped import TIMINGS, pipe, until
from .routed import exchanged, town

if TYPE_CHECKING:
    from inference_fleet.worker.supervisor import Supervisor


class EverythingServed:
    """A supervisor that claims every port: what is left in the way is what this spec is about."""

    @staticmethod
    def serves(_port: int, _process_key: str) -> bool:
        return True


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(4))
    await writer.drain()
    writer.close()


@pytest.mark.holds("B-69")
def test_a_neighbour_on_the_same_port_of_another_address_is_out_of_reach() -> None:
    reached: list[str] = []

    async def story(port: int) -> None:
        async def victim(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            reached.append(writer.get_extra_info("sockname")[0])
            await _echo(reader, writer)

        near, far = pipe()
        session = Session(near, client=False, timings=TIMINGS)
        worker = Session(
            far,
            client=True,
            timings=TIMINGS,
            on_stream=serve_streams(
                node="n",
                seen=SeenEpoch(value=1),
                resolve=resolver(http_port=port, supervisor=cast("Supervisor", EverythingServed())),
                timings=TIMINGS,
            ),
        )
        held = HeldSession(session=session, epoch=1, boot_id="boot", credential_version=1, claimed_at=0.0)

        async with town("a") as (_, houses), await asyncio.start_server(victim, "127.0.0.2", port):
            table, dialer = houses["a"].table, houses["a"].dialer
            tasks = [asyncio.create_task(worker.run()), asyncio.create_task(table.hold("n", held))]
            await until(lambda: table.get("n"))

            async def refusal(target: str) -> Refusal | None:
                parts = StreamParts(tag="backend", target=target, process_key="m#1")
                with pytest.raises(WorkerRefused) as caught:
                    await dialer.open("n", parts, deadline=Deadline.after(TIMINGS.request_s))
                return caught.value.refusal

            for elsewhere in (
                f"127.0.0.2:{port}",
                f"localhost:{port}",
                f"0.0.0.0:{port}",
                f"[::1]:{port}",
                f":{port}",
            ):
                assert await refusal(elsewhere) is Refusal.INVALID, elsewhere
            assert await refusal(f"127.0.0.1:{port}") is Refusal.UNAVAILABLE, (
                "nobody listens on this address's port"
            )
            assert reached == []

            async with await asyncio.start_server(
                _echo, "127.0.0.1", port
            ):  # the control: its own process it reaches
                parts = StreamParts(tag="backend", target=f"127.0.0.1:{port}", process_key="m#1")
                opened = await dialer.open("n", parts, deadline=Deadline.after(TIMINGS.request_s))
                assert await exchanged(opened.stream) == b"ping"
                opened.stream.abort()
            _, writer = await asyncio.open_connection(
                "127.0.0.2", port
            )  # and the victim is there to be reached
            await until(lambda: reached == ["127.0.0.2"])
            writer.close()
            await worker.close()
            await asyncio.gather(*tasks)

    # Below the ephemeral range: a port out of it collides with other specs' outgoing connections now and then.
    lease = lease_ports(1, run="spec", purpose="a neighbour")
    try:
        asyncio.run(story(lease.ports[0]))
    finally:
        lease.release()
