"""Tasks a replica is left with are told, and tunnels it has taken over are not called leaks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from blackstart.cluster.lifecycle import State
from blackstart.core.sentinel import Baseline
from blackstart.fleet import sentinel
from blackstart.fleet.scrape import Scrape
from blackstart.fleet.sentinel import TASKS_A_PEER_LINK, TASKS_A_TUNNEL, over, tasks_sentinel

if TYPE_CHECKING:
    import pytest

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


def test_a_worker_with_a_task_more_than_when_idle_is_told_like_a_replica() -> None:
    before = {**IDLE, "worker-0.1": {"tasks": 9.0, "tunnels": 1.0, "peers": 0.0}}
    assert over(before, _after(9, name="worker-0.1")) == []
    assert over(before, _after(10, name="worker-0.1")) == [
        "worker-0.1: 10 tasks, 9 when idle, 9 with its tunnels and links"
    ]
    # one that was started meanwhile has the leanest of its own kind before it, and no worker
    assert over(before, _after(20, name="frontend-0.2")) == []
    assert len(over(before, _after(21, name="frontend-0.2"))) == 1


def test_the_sentinel_looks_at_every_living_process_that_can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    scraped: dict[str, float] = {}

    def page(url: str, **_: float) -> Scrape:
        told = {"blackstart_tasks": scraped[url], "blackstart_tunnels": 1.0}
        if url.startswith("frontend"):
            told["blackstart_peer_links"] = 0.0
        return Scrape({(name, frozenset()): value for name, value in told.items()})

    def node(name: str, *, alive: bool = True, state: State = State.READY) -> Any:
        scraped[name] = 9.0
        return SimpleNamespace(name=name, url=name, incarnation=1, alive=alive, state=state)

    played: Any = SimpleNamespace(
        frontends=(node("frontend-0"), node("frontend-1", alive=False)),
        workers=(node("worker-0"), node("worker-1", state=State.PAUSED)),
        timings=SimpleNamespace(keepalive_timeout_s=0.0, drain_wait_s=0.0, handshake_s=0.0),
    )
    monkeypatch.setattr(sentinel, "scrape", page)
    baseline = Baseline((tasks_sentinel(played),))
    baseline.take()
    assert baseline.leaks() == []
    scraped["worker-0"] += 1
    assert [str(leak) for leak in baseline.leaks()] == [
        "blackstart_tasks: worker-0.1: 10 tasks, 9 when idle, 9 with its tunnels and links"
    ]
