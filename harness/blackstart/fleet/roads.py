"""The roads between replicas: a link of the harness's before each one, and the cuts that stand on them now."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from blackstart.faults.peer import PeerCut
from blackstart.net.balancer import Action, Balancer

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from blackstart.cluster.node import Node
    from blackstart.core.topology import Place
    from blackstart.faults import Fault, Standing
    from blackstart.process import Spawner
    from blackstart.record import Run

PEER_PATH = "^/api/cluster/peer$"


class PeerRoads:
    """Links by replica number; none are laid for a fleet that did not ask for them, and then nothing can be cut."""

    def __init__(self) -> None:
        self._links: dict[int, Balancer] = {}
        self._cuts: dict[frozenset[int], ExitStack] = {}

    def lay(self, frontend: Node, *, spawner: Spawner, run: Run, spec: str) -> None:
        """A link before one replica, which its peers are told as its address."""
        self._links[frontend.index] = Balancer(
            spawner,
            run,
            spec=spec,
            node=f"peer-link-{frontend.index}",
            backends=[frontend.place.address],
            later=True,
        )

    def wait_ready(self) -> None:
        """Return once every link that was laid passes what comes."""
        for link in self._links.values():
            link.wait_ready()

    def address_of(self, place: Place) -> str:
        """Where its peers dial the replica that stands there."""
        link = self._links.get(place.index)
        return place.address if link is None else link.address

    def cut(
        self, a: Node, b: Node, *, action: Action, stand: Callable[[Fault], AbstractContextManager[Standing]]
    ) -> Standing:
        """Cut the road between two replicas both ways, live connections too, until it is healed."""
        pair = frozenset({a.index, b.index})
        cut = PeerCut(self._between(a, b), PEER_PATH, action=action)
        if pair in self._cuts:
            raise ValueError(
                f"cut_peer({a.index}, {b.index}): is cut already; try: heal_peer({a.index}, {b.index}) first"
            )
        stack = ExitStack()
        stands = stack.enter_context(stand(cut))
        self._cuts[pair] = stack
        return stands

    def heal(self, a: int, b: int) -> None:
        """Take the cut between two replicas away, once it was seen to be met; the next dial goes through."""
        stack = self._cuts.pop(frozenset({a, b}), None)
        if stack is None:
            raise ValueError(f"heal_peer({a}, {b}): is not cut; try: cut_peer({a}, {b}) first")
        stack.close()

    def heal_all(self) -> None:
        """Take every cut away that still stands."""
        for pair in tuple(self._cuts):
            self.heal(*pair)

    def close(self) -> None:
        """Give the links back."""
        for link in self._links.values():
            link.close()

    def _between(self, a: Node, b: Node) -> list[Balancer]:
        if a.index == b.index:
            raise ValueError(
                f"cut_peer({a.index}, {b.index}): {a.name} is no peer of itself; try: cut_peer(0, 1)"
            )
        if not self._links:
            raise ValueError(
                f"cut_peer({a.index}, {b.index}): there is no link between them; try: cluster(peer_links=True)"
            )
        return [self._links[a.index], self._links[b.index]]
