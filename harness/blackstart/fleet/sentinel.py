"""asyncio tasks a replica or a worker is left with when a spec ends: back to its idle baseline, or the spec leaked them.

The baseline is what the process runs with nothing under way. A tunnel or a peer link that came meanwhile has tasks of
its own, so the figure is compared as: baseline, plus what each tunnel and link more than before is owed. Work that is just
ending is given the fleet's own time to end.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from blackstart.cluster.lifecycle import State
from blackstart.core.deadline import Looks
from blackstart.core.sentinel import Inventory, Sentinel
from blackstart.fleet.scrape import scrape

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from blackstart.cluster.node import Node
    from blackstart.fleet.fleet import Fleet
    from blackstart.fleet.scrape import Scrape

# measured in a real fleet by specs/cluster/test_sentinel.py, for tunnels and links whose transport was taken over
TASKS_A_TUNNEL = 4
TASKS_A_PEER_LINK = 3  # of the replica that dialled it; the other end has one less
_LOOK_EVERY_S = 0.05


def tasks_sentinel(fleet: Fleet) -> Sentinel:
    """Snapshot when the spec begins, snapshot when it ends; the second waits a while for what is just ending."""
    timings = fleet.timings
    within = timings.keepalive_timeout_s + timings.drain_wait_s
    first: dict[str, dict[str, float]] = {}

    def snapshot() -> Inventory:
        if not first:
            first.update(_look(fleet))
            return first
        until = time.monotonic() + within
        for turn in Looks(until=until, every_s=_LOOK_EVERY_S, clock=time.monotonic, sleep=time.sleep):
            now = _look(fleet)
            if not over(first, now) or turn.over:
                break
        return now

    return Sentinel(name="blackstart_tasks", snapshot=snapshot, compare=over)


def over(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[str]:
    """The processes with more tasks than their baseline and their tunnels account for.

    One started during the spec is measured against the leanest baseline of its kind.
    """
    told = []
    for name, now in after.items():
        alike = [figures for known, figures in before.items() if _kind(known) == _kind(name)]
        if not alike:
            continue
        base = before.get(name) or min(alike, key=lambda figures: float(figures["tasks"]))
        # never below the baseline: a replica that lost a tunnel has been seen with two tasks that no gauge accounts for
        more_tunnels = max(0.0, now["tunnels"] - base["tunnels"])
        more_links = max(0.0, now["peers"] - base["peers"])
        allowed = base["tasks"] + more_tunnels * TASKS_A_TUNNEL + more_links * TASKS_A_PEER_LINK
        if now["tasks"] > allowed:
            told.append(
                f"{name}: {now['tasks']:g} tasks, {base['tasks']:g} when idle, {allowed:g} with its tunnels and links"
            )
    return told


def _look(fleet: Fleet) -> dict[str, dict[str, float]]:
    """A paused process cannot answer, and has not run since it could."""
    replicas, workers = (
        [node for node in group if node.alive and node.state is not State.PAUSED]
        for group in (fleet.frontends, fleet.workers)
    )
    within = fleet.timings.handshake_s
    return {
        **{_name(node): figures(scrape(node.url, within=within), links=True) for node in replicas},
        **{_name(node): figures(scrape(node.url, within=within), links=False) for node in workers},
    }


def figures(seen: Scrape, *, links: bool) -> dict[str, float]:
    """What is compared; a worker has no links to peers."""
    return {
        "tasks": seen.value("blackstart_tasks"),
        "tunnels": seen.value("blackstart_tunnels"),
        "peers": seen.value("blackstart_peer_links") if links else 0.0,
    }


def _name(node: Node) -> str:
    return f"{node.name}.{node.incarnation}"


def _kind(name: str) -> str:
    """`frontend` of `frontend-0.1`."""
    return name.rpartition("-")[0]
