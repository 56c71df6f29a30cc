"""Tasks a replica is left with are told, and tunnels it has taken over are not called leaks."""

from __future__ import annotations

from blackstart.fleet.sentinel import TASKS_A_PEER_LINK, TASKS_A_TUNNEL, over

IDLE = {"frontend-0.1": {"tasks": 20.0, "tunnels": 1.0, "peers": 0.0}}


def _after(
    tasks: float, tunnels: float = 1.0, peers: float = 0.0, name: str = "frontend-0.1"
) -> dict[str, dict[str, float]]:
    return {name: {"tasks": tasks, "tunnels": tunnels, "peers": peers}}


def test_a_replica_back_at_its_baseline_is_told_nothing() -> None:
    assert over(IDLE, _after(20)) == []
    assert over(IDLE, _after(14, tunnels=0)) == []


def test_one_task_more_than_when_idle_is_told_with_both_figures() -> None:
    assert over(IDLE, _after(21)) == ["frontend-0.1: 21 tasks, 20 when idle, 20 with its tunnels and links"]


def test_a_tunnel_that_came_meanwhile_accounts_for_its_own_tasks_and_no_more() -> None:
    assert over(IDLE, _after(20 + TASKS_A_TUNNEL, tunnels=2)) == []
    assert len(over(IDLE, _after(21 + TASKS_A_TUNNEL, tunnels=2))) == 1


def test_a_link_to_a_peer_accounts_for_its_own_tasks_and_no_more() -> None:
    assert over(IDLE, _after(20 + TASKS_A_PEER_LINK, peers=1)) == []
    assert len(over(IDLE, _after(21 + TASKS_A_PEER_LINK, peers=1))) == 1


def test_a_replica_started_meanwhile_is_measured_against_the_leanest_of_the_others() -> None:
    before = {**IDLE, "frontend-1.1": {"tasks": 12.0, "tunnels": 0.0, "peers": 0.0}}
    assert over(before, _after(12, tunnels=0, name="frontend-1.2")) == []
    assert len(over(before, _after(13, tunnels=0, name="frontend-1.2"))) == 1


def test_a_dead_replica_owes_nothing() -> None:
    assert over(IDLE, {}) == []
