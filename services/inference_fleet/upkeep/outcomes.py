"""What each thing that can be learned about a worker permits, in one table; what is not in it permits nothing.

| learned                                          | stops placing | demotes | deletes                           |
|--------------------------------------------------|---------------|---------|-----------------------------------|
| presence `gone`                                  | yes           | yes     | nothing                           |
| heartbeat dead, presence not connected           | yes           | yes     | the node's model rows             |
| heartbeat dead, tunnel live (`heartbeat-path`)   | yes           | yes     | nothing                           |
| presence unknown, reconnecting, or not readable  | no            | no      | nothing                           |
| any way a route ended                            | no            | no      | nothing                           |
| the worker's own answer (a refusal that is evidence) | no        | no      | the one row it was asked about    |
| any other refusal, or a code nobody here knows   | no            | no      | nothing                           |
| a failed control call                            | no            | no      | nothing                           |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from inference_fleet.cluster import Presence
from inference_fleet.route.outcomes import RouteOutcome
from inference_fleet.tunnel.refusals import REFUSALS


class Source(StrEnum):
    """Who said it."""

    FACT = "fact"
    ROUTE = "route"
    ANSWER = "answer"
    CONTROL = "control"


class Fact(StrEnum):
    """What the rows say about a node, beyond its bare presence."""

    HEARTBEAT_DEAD = "heartbeat-dead"
    HEARTBEAT_PATH = "heartbeat-path"
    PRESENCE_UNREAD = "presence-unread"


@dataclass(frozen=True, kw_only=True)
class Permit:
    """What may be done. `delete_row` is the one row an answer was about, `delete_models` all of the node's."""

    stop_placing: bool = False
    demote: bool = False
    delete_row: bool = False
    delete_models: bool = False


NOTHING: Final = Permit()

_FACTS: Final[dict[str, Permit]] = {
    Presence.GONE: Permit(stop_placing=True, demote=True),
    Presence.RECONNECTING: NOTHING,
    Presence.UNKNOWN: NOTHING,
    Presence.CONNECTED: NOTHING,
    Fact.HEARTBEAT_DEAD: Permit(stop_placing=True, demote=True, delete_models=True),
    Fact.HEARTBEAT_PATH: Permit(stop_placing=True, demote=True),
    Fact.PRESENCE_UNREAD: NOTHING,
}

PERMITS: Final[dict[tuple[Source, str], Permit]] = {
    **{(Source.FACT, str(fact)): permit for fact, permit in _FACTS.items()},
    **{(Source.ROUTE, outcome.value): NOTHING for outcome in RouteOutcome},
    **{(Source.ANSWER, rule.code): Permit(delete_row=rule.evidence) for rule in REFUSALS.values()},
    (Source.CONTROL, "failed"): NOTHING,
}


def permits(source: Source, outcome: str) -> Permit:
    """The row of the table, or nothing."""
    return PERMITS.get((source, outcome), NOTHING)
