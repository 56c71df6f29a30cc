"""The database side of the roster: the worker never imports it."""

from inference_fleet.roster.frontend.credentials import CredentialVersion
from inference_fleet.roster.frontend.facts import (
    NODE_FACTS,
    NodeView,
    fact_windows,
    presence_in,
    status_facts,
    view_of,
)
from inference_fleet.roster.frontend.registration import NameTaken
from inference_fleet.roster.frontend.roster import (
    BootSuperseded,
    Candidate,
    Explanation,
    NodeUnknown,
    Roster,
)
from inference_fleet.roster.frontend.status import (
    Judgement,
    NodeStatus,
    StatusFacts,
    is_demotion,
    judge_status,
)

__all__ = [
    "NODE_FACTS",
    "BootSuperseded",
    "Candidate",
    "CredentialVersion",
    "Explanation",
    "Judgement",
    "NameTaken",
    "NodeStatus",
    "NodeUnknown",
    "NodeView",
    "Roster",
    "StatusFacts",
    "fact_windows",
    "is_demotion",
    "judge_status",
    "presence_in",
    "status_facts",
    "view_of",
]
