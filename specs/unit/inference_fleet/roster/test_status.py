"""One machine decides every status: the table, row by row, and what no row may say."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from inference_fleet.cluster import Presence
from inference_fleet.roster.frontend import Judgement, NodeStatus, StatusFacts, is_demotion, judge_status

FINE = StatusFacts(
    approved=True,
    draining=False,
    heartbeat_fresh=True,
    presence=Presence.CONNECTED,
    before=NodeStatus.HEALTHY,
)
EVERY = [
    StatusFacts(
        approved=approved,
        draining=draining,
        heartbeat_fresh=fresh,
        presence=presence,
        before=before,
        reason_before=reason,
    )
    for approved, draining, fresh, presence, before, reason in product(
        (False, True),
        (False, True),
        (False, True),
        Presence,
        NodeStatus,
        ("", "tunnel-gone", "heartbeat-dead"),
    )
]


@pytest.mark.parametrize(
    ("facts", "status", "reason", "deletes"),
    [
        (FINE, "healthy", "", False),
        (replace(FINE, approved=False), "pending", "awaiting-approval", False),
        (replace(FINE, heartbeat_fresh=False), "unhealthy", "heartbeat-path", False),
        (
            replace(FINE, heartbeat_fresh=False, presence=Presence.RECONNECTING),
            "offline",
            "heartbeat-dead",
            True,
        ),
        (replace(FINE, heartbeat_fresh=False, presence=Presence.GONE), "offline", "heartbeat-dead", True),
        (replace(FINE, presence=Presence.GONE), "unhealthy", "tunnel-gone", False),
        (replace(FINE, presence=Presence.RECONNECTING), "healthy", "", False),
        (replace(FINE, presence=Presence.UNKNOWN), "healthy", "", False),
        (replace(FINE, draining=True), "draining", "", False),
        (replace(FINE, draining=True, presence=Presence.GONE), "draining", "tunnel-gone", False),
        (
            replace(FINE, draining=True, heartbeat_fresh=False, presence=Presence.GONE),
            "offline",
            "heartbeat-dead",
            True,
        ),
    ],
)
def test_the_table(facts: StatusFacts, status: str, reason: str, *, deletes: bool) -> None:
    assert judge_status(facts) == Judgement(status=NodeStatus(status), reason=reason, delete_models=deletes)


@pytest.mark.holds("B-147")
@pytest.mark.parametrize("before", list(NodeStatus))
def test_any_approved_node_whose_heartbeat_dies_without_a_tunnel_becomes_offline(before: NodeStatus) -> None:
    dead = replace(
        FINE, heartbeat_fresh=False, presence=Presence.GONE, before=before, reason_before="tunnel-gone"
    )
    judged = judge_status(dead)
    assert judged.status is NodeStatus.OFFLINE, f"{before} stays {judged.status} for ever"
    assert judged.delete_models


@pytest.mark.holds("B-140", "B-149")
@pytest.mark.parametrize("before", [NodeStatus.UNHEALTHY, NodeStatus.OFFLINE])
@pytest.mark.parametrize("presence", [Presence.UNKNOWN, Presence.RECONNECTING, Presence.GONE])
def test_recovery_needs_the_tunnel_back_and_not_only_the_heartbeat(
    before: NodeStatus, presence: Presence
) -> None:
    judged = judge_status(replace(FINE, before=before, reason_before="tunnel-gone", presence=presence))
    assert judged.status is NodeStatus.UNHEALTHY, f"promoted to {judged.status} without a tunnel"
    assert (
        judge_status(replace(FINE, before=before)).status is NodeStatus.HEALTHY
    )  # control: with it, it recovers


def test_a_draining_node_keeps_its_demotion_in_the_reason() -> None:
    waiting = replace(
        FINE,
        draining=True,
        before=NodeStatus.DRAINING,
        reason_before="tunnel-gone",
        presence=Presence.RECONNECTING,
    )
    assert judge_status(waiting) == Judgement(status=NodeStatus.DRAINING, reason="tunnel-gone")
    assert judge_status(replace(waiting, presence=Presence.CONNECTED)).reason == ""


@pytest.mark.holds("B-141")
def test_models_are_deleted_only_for_a_dead_heartbeat_that_no_tunnel_contradicts() -> None:
    deleting = [facts for facts in EVERY if judge_status(facts).delete_models]
    assert deleting  # control: there is evidence that deletes
    for facts in deleting:
        assert facts.approved
        assert not facts.heartbeat_fresh
        assert facts.presence is not Presence.CONNECTED


def test_judging_twice_changes_nothing() -> None:
    for facts in EVERY:
        once = judge_status(facts)
        twice = judge_status(replace(facts, before=once.status, reason_before=once.reason))
        assert (twice.status, twice.reason) == (once.status, once.reason), facts


def test_a_demotion_is_a_change_for_the_worse() -> None:
    assert is_demotion(NodeStatus.HEALTHY, NodeStatus.UNHEALTHY)
    assert is_demotion(NodeStatus.UNHEALTHY, NodeStatus.OFFLINE)
    assert not is_demotion(NodeStatus.OFFLINE, NodeStatus.UNHEALTHY)
    assert not is_demotion(NodeStatus.UNHEALTHY, NodeStatus.HEALTHY)
    assert not is_demotion(NodeStatus.PENDING, NodeStatus.HEALTHY)
