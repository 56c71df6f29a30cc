"""asyncio tasks a replica is left with when a spec ends: back to its idle baseline, or the spec leaked them.

The baseline is what the replica runs with nothing under way. A tunnel or a peer link that came meanwhile has tasks of
its own, so the figure is compared as: baseline, plus what each tunnel and link more than before is owed. Work that is just
ending is given the fleet's own time to end.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from blackstart.core.sentinel import Inventory, Sentinel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from blackstart.cluster.node import Node
    from blackstart.fleet.fleet import Fleet

TASKS_A_TUNNEL = 6
TASKS_A_PEER_LINK = 5  # of the replica that dialled it; the other end has one less
_LOOK_EVERY_S = 0.05


def tasks_sentinel(fleet: Fleet) -> Sentinel:
    """Snapshot when the spec begins, snapshot when it ends; the second waits a while for what is just ending."""
    timings = fleet.timings
    within = timings.keepalive_timeout_s + timings.drain_wait_s
    first: dict[str, dict[str, float]] = {}

    def snapshot() -> Inventory:
        if not first:
            first.update({_name(node): _figures(fleet, node) for node in fleet.frontends if node.alive})
            return first
        deadline = time.monotonic() + within
        while True:
            now = {_name(node): _figures(fleet, node) for node in fleet.frontends if node.alive}
            if not over(first, now) or time.monotonic() >= deadline:
                return now
            time.sleep(_LOOK_EVERY_S)

    return Sentinel(name="blackstart_tasks", snapshot=snapshot, compare=over)


def over(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[str]:
    """The replicas with more tasks than their baseline and their tunnels account for.

    A replica started during the spec is measured against the leanest baseline there is.
    """
    if not before:
        return []
    leanest = min(before.values(), key=lambda figures: float(figures["tasks"]))
    told = []
    for name, now in after.items():
        base = before.get(name, leanest)
        more_tunnels = max(0.0, now["tunnels"] - base["tunnels"])
        more_links = max(0.0, now["peers"] - base["peers"])
        allowed = base["tasks"] + more_tunnels * TASKS_A_TUNNEL + more_links * TASKS_A_PEER_LINK
        if now["tasks"] > allowed:
            told.append(
                f"{name}: {now['tasks']:g} tasks, {base['tasks']:g} when idle, {allowed:g} with its tunnels and links"
            )
    return told


def _figures(fleet: Fleet, node: Node) -> dict[str, float]:
    seen = fleet.metrics(node.index)
    return {
        "tasks": seen.value("blackstart_tasks"),
        "tunnels": seen.value("blackstart_tunnels"),
        "peers": seen.value("blackstart_peer_links"),
    }


def _name(node: Node) -> str:
    return f"{node.name}.{node.incarnation}"
