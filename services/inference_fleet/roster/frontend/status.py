"""A node's status as one pure state machine over four facts; nothing else decides what a node is called.

| approved | heartbeat | presence             | before                   | status                | reason            | models   |
|----------|-----------|----------------------|--------------------------|-----------------------|-------------------|----------|
| no       | any       | any                  | any                      | pending               | awaiting-approval | kept     |
| yes      | dead      | connected            | any                      | unhealthy             | heartbeat-path    | kept     |
| yes      | dead      | anything else        | any                      | offline               | heartbeat-dead    | deleted  |
| yes      | fresh     | gone                 | any                      | unhealthy             | tunnel-gone       | kept     |
| yes      | fresh     | connected            | any                      | healthy               |                   | kept     |
| yes      | fresh     | unknown/reconnecting | healthy, pending         | healthy               |                   | kept     |
| yes      | fresh     | unknown/reconnecting | unhealthy, offline       | unhealthy             | tunnel-awaited    | kept     |
| yes      | any       | any                  | any, and draining is set | draining, or offline  | as above          | as above |

So an unhealthy node becomes offline as soon as its heartbeat dies; a lost tunnel costs a node its status and never
its rows; and recovery needs the tunnel back, or a node would be promoted and demoted at every tick.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from inference_fleet.cluster import Presence


class NodeStatus(StrEnum):
    """What `GET /api/nodes` calls a node."""

    PENDING = "pending"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    OFFLINE = "offline"
    DRAINING = "draining"


# From best to worst: a change to a later one is a demotion and is journaled.
_RANK = {
    NodeStatus.HEALTHY: 0,
    NodeStatus.DRAINING: 0,
    NodeStatus.PENDING: 0,
    NodeStatus.UNHEALTHY: 1,
    NodeStatus.OFFLINE: 2,
}


@dataclass(frozen=True, kw_only=True)
class StatusFacts:
    """What a status is made of; `before` is the status the row carries now."""

    approved: bool
    draining: bool
    heartbeat_fresh: bool
    presence: Presence
    before: NodeStatus
    reason_before: str = ""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The status the facts give, why, and whether the node's model rows are deleted with it."""

    status: NodeStatus
    reason: str
    delete_models: bool = False


def judge_status(facts: StatusFacts) -> Judgement:
    """The table above."""
    if not facts.approved:
        return Judgement(status=NodeStatus.PENDING, reason="awaiting-approval")
    plain = _judge_reach(facts)
    if facts.draining and plain.status is not NodeStatus.OFFLINE:
        return Judgement(status=NodeStatus.DRAINING, reason=plain.reason)
    return plain


def _judge_reach(facts: StatusFacts) -> Judgement:
    if not facts.heartbeat_fresh:
        if facts.presence is Presence.CONNECTED:
            return Judgement(status=NodeStatus.UNHEALTHY, reason="heartbeat-path")
        return Judgement(status=NodeStatus.OFFLINE, reason="heartbeat-dead", delete_models=True)
    if facts.presence is Presence.GONE:
        return Judgement(status=NodeStatus.UNHEALTHY, reason="tunnel-gone")
    if facts.presence is Presence.CONNECTED or not _was_demoted(facts):
        return Judgement(status=NodeStatus.HEALTHY, reason="")
    return Judgement(status=NodeStatus.UNHEALTHY, reason=_awaiting(facts))


def _was_demoted(facts: StatusFacts) -> bool:
    """Whether the row carries a demotion; on a draining node it is in the reason."""
    if facts.before is NodeStatus.DRAINING:
        return facts.reason_before != ""
    return facts.before in {NodeStatus.UNHEALTHY, NodeStatus.OFFLINE}


def _awaiting(facts: StatusFacts) -> str:
    """Why it is still unhealthy: the loss of the tunnel, or the wait for one after a dead heartbeat."""
    return "tunnel-gone" if facts.reason_before == "tunnel-gone" else "tunnel-awaited"


def is_demotion(before: NodeStatus, after: NodeStatus) -> bool:
    """Whether the change is for the worse, and so a row of the reap journal."""
    return _RANK[after] > _RANK[before]
