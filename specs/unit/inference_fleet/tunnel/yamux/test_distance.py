"""What windows make of a distant link, in reckoned time: the same transfer with growth and without."""

from __future__ import annotations

import functools
import heapq
import itertools
from typing import TYPE_CHECKING

import pytest

from inference_fleet.tunnel.yamux import Limits, Mux
from inference_fleet.tunnel.yamux.wire import HEADER_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1024 * 1024
BYTES_PER_S, ONE_WAY_S = 25_000_000, 0.025  # 200 Mbit/s and 50 ms there and back
QUEUE_S = ONE_WAY_S / 5
LOCAL_S = ONE_WAY_S / 10
TRANSFER = 48 * MIB
OF_WHAT_IT_CARRIES, WITHOUT_GROWTH = 0.8, 0.25


class Way:
    """One direction: what an end sends comes to the other at the link's rate and after its delay."""

    def __init__(self, world: World, sender: Mux, receiver: Mux) -> None:
        self.world, self.sender, self.receiver = world, sender, receiver
        self.free_s = 0.0
        self.received = 0
        self._full = False
        self.back: Way

    def pump(self) -> None:
        """Put frames on the link while little stands in front of it, as a socket takes them."""
        while self.free_s - self.world.now <= QUEUE_S:
            outgoing = self.sender.next_outgoing()
            if outgoing is None:
                return
            begun = max(self.free_s, self.world.now)
            self.free_s = begun + (HEADER_BYTES + outgoing.length) / BYTES_PER_S
            self.world.at(
                self.free_s + ONE_WAY_S, functools.partial(self.arrive, outgoing.header, outgoing.length)
            )
        if not self._full:
            self._full = True
            self.world.at(self.free_s - QUEUE_S / 2, self._on)

    def _on(self) -> None:
        self._full = False
        self.pump()

    def arrive(self, header: bytes, length: int) -> None:
        """The reader at the other end uses all at once."""
        self.receiver.receive_header(header, self.world.now)
        if length:
            stream = self.receiver.payload_stream
            self.receiver.receive_payload(length)
            self.receiver.consumed(stream, length, self.world.now)
            self.received += length
        self.back.pump()
        self.pump()


class World:
    """Time, and what is due."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._due, (max(when, self.now), next(self._order), what))

    def step(self) -> None:
        self.now, _, what = heapq.heappop(self._due)
        what()


def share_carried(limits: Limits) -> float:
    """How much of the link's rate one stream gets for a whole transfer, from its SYN on."""
    world = World()
    sender, receiver = (Mux(client=client, limits=limits, local_s=LOCAL_S) for client in (True, False))
    there, back = Way(world, sender, receiver), Way(world, receiver, sender)
    there.back, back.back = back, there
    stream = sender.open()
    receiver.measure(world.now)
    sender.offer(stream, TRANSFER)
    there.pump()
    back.pump()
    while there.received < TRANSFER:
        world.step()
    return TRANSFER / world.now / BYTES_PER_S


@pytest.mark.holds("B-36")
def test_one_stream_gets_four_fifths_of_a_distant_link_and_without_growth_a_quarter_at_most() -> None:
    fixed, grown = share_carried(Limits(growth_pool=1)), share_carried(Limits())
    print(f"of 200 Mbit/s over 50 ms: {grown:.2f}, without growth {fixed:.2f}")  # noqa: T201  # the figures
    assert fixed <= WITHOUT_GROWTH, f"the control carries {fixed:.2f}"
    assert grown >= OF_WHAT_IT_CARRIES, (
        f"only {grown:.2f} of what the link carries, {fixed:.2f} without growth"
    )
