"""What the sentinel of tasks grants a tunnel and a peer link is what real processes run for them, no task more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.fleet.sentinel import TASKS_A_PEER_LINK, TASKS_A_TUNNEL, tasks_sentinel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blackstart.core.sentinel import Inventory
    from blackstart.fleet import Fleet

LOOKS = 5  # a heartbeat that is answered just now is a task, too, but not in each of them


@pytest.mark.cluster(frontends=2, workers=1)
def test_a_tunnel_and_a_peer_link_have_the_tasks_they_are_granted_and_leave_none_behind(fleet: Fleet) -> None:
    sentinel = tasks_sentinel(fleet)
    idle = sentinel.snapshot()
    owner, other = _leanest(fleet)
    # there and back again: whatever a tunnel that ended left is one task more than there was
    fleet.move(0, to=1)
    fleet.move(0, to=0)
    left = sentinel.compare(idle, sentinel.snapshot())
    assert left == [], f"left behind: {left}"
    fleet.move(0, to=1)
    owner, other = owner - TASKS_A_TUNNEL, other + TASKS_A_TUNNEL
    _settles(fleet, (owner, other))
    assert fleet.chat(via=0).route == "relayed"
    _settles(fleet, (owner + TASKS_A_PEER_LINK, other + TASKS_A_PEER_LINK - 1))


def _settles(fleet: Fleet, wanted: tuple[float, float]) -> None:
    timings = fleet.timings
    within = timings.keepalive_timeout_s + timings.drain_wait_s
    eventually(lambda: _leanest(fleet), wanted, within=within, watch=fleet.watch)


def _leanest(fleet: Fleet) -> tuple[float, float]:
    """The tasks of both replicas, without those of whatever a single look fell upon."""
    looks = [tasks_sentinel(fleet).snapshot() for _ in range(LOOKS)]
    return _least(looks, "frontend-0"), _least(looks, "frontend-1")


def _least(looks: list[Inventory], name: str) -> float:
    return min(figures["tasks"] for look in looks for figures in _of(look, name))


def _of(look: Inventory, name: str) -> list[Mapping[str, float]]:
    return [figures for node, figures in look.items() if node.startswith(f"{name}.")]
