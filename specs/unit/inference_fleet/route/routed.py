"""Replicas' routing without their HTTP servers: real tables, links, dialers and sessions, joined in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inference_fleet.cluster import Owner
from inference_fleet.route import HeldSession, PeerLinks, PeerServer, SessionTable, WorkerDialer
from inference_fleet.settings import Deadline
from inference_fleet.telemetry.metrics import Metrics
from inference_fleet.tunnel import Ending, Session, StreamRequest, accept_stream, read_frame

from .piped import TIMINGS, pipe, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from inference_fleet.settings import Timings
    from inference_fleet.tunnel import Stream

Serve = Callable[["Stream", StreamRequest], Awaitable[None]]


@dataclass
class Owners:
    """What the ownership table says, and how often it was asked; an exception is raised, a list answers in turn."""

    says: dict[str, Owner | Exception | list[Owner | None] | None] = field(default_factory=dict)
    asked: int = 0

    async def owner(self, node_id: str) -> Owner | None:
        self.asked += 1
        said = self.says.get(node_id)
        if isinstance(said, Exception):
            raise said
        return said.pop(0) if isinstance(said, list) else said


class House:
    """One replica's routing; peers are found by name in the dict all houses of a story share."""

    def __init__(self, name: str, owners: Owners, town: dict[str, House], timings: Timings = TIMINGS) -> None:
        self.name = name
        self.timings = timings
        self.metrics = Metrics()
        self.table = SessionTable(drain_wait_s=timings.drain_wait_s)
        self.server = PeerServer(table=self.table, timings=timings, metrics=self.metrics)
        self.dials = 0
        self.links = PeerLinks(instance_id=name, dial=self._dial, timings=timings)
        self.dialer = WorkerDialer(
            instance_id=name,
            table=self.table,
            owners=owners,
            peers=self.links,
            timings=timings,
            metrics=self.metrics,
        )
        self.town = town
        town[name] = self
        self.serving: set[asyncio.Task[Ending]] = set()

    def outcome(self, name: str) -> float:
        """How often a dial ended that way."""
        return float(self.metrics.dials.labels(name)._value.get())

    def refusals(self) -> dict[str, float]:
        """How many refusals of streams this replica heard or sent, by label."""
        samples = [sample for family in self.metrics.refusals.collect() for sample in family.samples]
        return {sample.labels["code"]: sample.value for sample in samples if sample.name.endswith("_total")}

    async def _dial(self, owner: Owner, *, deadline: Deadline) -> Session:
        del deadline
        self.dials += 1
        if owner.instance_id not in self.town:
            raise ConnectionRefusedError(f"nothing listens at {owner.address}")
        near, far = pipe()
        task = asyncio.create_task(self.town[owner.instance_id].server.serve(far, peer=self.name))
        self.serving.add(task)
        task.add_done_callback(self.serving.discard)
        return Session(near, client=True, timings=self.timings, name=f"{self.name} to {owner.instance_id}")


@contextlib.asynccontextmanager
async def town(*names: str, timings: Timings = TIMINGS) -> AsyncIterator[tuple[Owners, dict[str, House]]]:
    """Houses whose links run until the block ends."""
    owners = Owners()
    houses: dict[str, House] = {}
    for name in names:
        House(name, owners, houses, timings)
    running = [asyncio.create_task(house.links.run()) for house in houses.values()]
    await asyncio.sleep(0)
    try:
        yield owners, houses
    finally:
        for house in houses.values():
            await house.links.close(Deadline.after(0))
        for task in running:
            task.cancel()
        serving = [task for house in houses.values() for task in house.serving]
        await asyncio.gather(*running, *serving, return_exceptions=True)


async def echo(stream: Stream, _request: StreamRequest) -> None:
    """Accept, and give every byte back."""
    accept_stream(stream)
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            stream.write(await stream.read_exactly(1, deadline=Deadline.after(TIMINGS.request_s)))
    stream.write_eof()


@dataclass
class Held:
    """A worker's tunnel at a house; `requests` is what its streams asked for."""

    held: HeldSession
    worker: Session
    requests: list[StreamRequest]


@contextlib.asynccontextmanager
async def tunnel(
    house: House, node: str = "n", *, epoch: int = 1, boot: str = "boot", serve: Serve = echo
) -> AsyncIterator[Held]:
    """A tunnel held at a house until the block ends."""
    near, far = pipe()
    requests: list[StreamRequest] = []

    async def on_stream(stream: Stream) -> None:
        payload = await read_frame(stream, deadline=Deadline.after(TIMINGS.stream_header_s))
        requests.append(StreamRequest.decode(payload))
        await serve(stream, requests[-1])

    session = Session(near, client=False, timings=house.timings, name=f"front of {node}")
    worker = Session(far, client=True, timings=house.timings, on_stream=on_stream, name=node)
    held = HeldSession(session=session, epoch=epoch, boot_id=boot, credential_version=1, claimed_at=0.0)
    tasks = [asyncio.create_task(worker.run()), asyncio.create_task(house.table.hold(node, held))]
    await until(lambda: house.table.get(node) is held)
    try:
        yield Held(held, worker, requests)
    finally:
        await worker.close()
        await asyncio.gather(*tasks)


def owned_by(name: str, *, epoch: int = 1, address: str = "10.0.0.1:8080") -> Owner:
    """A row of the ownership table, as the liveness join gives it."""
    return Owner(instance_id=name, address=address, epoch=epoch)


async def exchanged(stream: Stream, data: bytes = b"ping") -> bytes:
    """What comes back for what goes in."""
    stream.write(data)
    return await stream.read_exactly(len(data), deadline=Deadline.after(TIMINGS.stream_open_s))
