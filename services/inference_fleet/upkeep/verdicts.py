"""From the facts about all nodes to the changes they justify; pure, so a brake can stand between the two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from inference_fleet.roster.frontend import (
    Judgement,
    NodeStatus,
    is_demotion,
    judge_status,
    presence_in,
    status_facts,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One node's change of status, and everything it rested on: the write holds only while that is still so."""

    node_id: str
    before: NodeStatus
    judgement: Judgement
    last_heartbeat: datetime | None
    owner: str | None
    epoch: int | None
    evidence: Mapping[str, Any]

    @property
    def demotes(self) -> bool:
        """Whether it is for the worse."""
        return is_demotion(self.before, self.judgement.status)


def verdict_of(row: Mapping[str, Any]) -> Verdict | None:
    """What a row of `NODE_FACTS` justifies; None when the node is called what it should be called."""
    facts = status_facts(row)
    judgement = judge_status(facts)
    if (judgement.status, judgement.reason) == (facts.before, facts.reason_before):
        return None
    return Verdict(
        node_id=row["id"],
        before=facts.before,
        judgement=judgement,
        last_heartbeat=row["last_heartbeat"],
        owner=row["owner"],
        epoch=row["epoch"],
        evidence={
            "status_before": facts.before.value,
            "status": judgement.status.value,
            "heartbeat_fresh": facts.heartbeat_fresh,
            "heartbeat_age_s": row["heartbeat_age_s"],
            "presence": presence_in(row).value,
            "owner": row["owner"] or "",
            "boot_id": row["boot_id"],
        },
    )


def verdicts_of(rows: Iterable[Mapping[str, Any]]) -> list[Verdict]:
    """The changes all nodes' facts justify."""
    return [verdict for row in rows if (verdict := verdict_of(row)) is not None]
