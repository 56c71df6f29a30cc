"""Can anyone reach a worker: four values from one statement on the database's clock, of which one is a verdict.

| value          | the row says                                     | may a caller act on it                       |
|----------------|--------------------------------------------------|----------------------------------------------|
| `unknown`      | nothing: never dialled, or aged out              | no: which of the two cannot be told          |
| `connected`    | held, and its owner is live                      | yes, by dialling                             |
| `reconnecting` | held by a dead owner, or departed in the grace   | no: a worker moving house looks like this    |
| `gone`         | departed, longer ago than the grace              | yes: this one is the verdict                 |

Held-ness is asked first and the stamp second, twice: in the SQL, and in the rule that reads it. A row that is held
may carry an old departure stamp (a writer that did not clear it), and that stamp says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inference_fleet.settings import Timings


class Presence(StrEnum):
    """Whether anyone can reach a worker."""

    UNKNOWN = "unknown"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class PresenceFacts:
    """What the statement found: both windows already compared by the database's clock."""

    has_row: bool
    held: bool
    owner_live: bool
    departed_past_grace: bool


# The join every statement that reads presence makes, on a table `n` whose `id` is the node's.
PRESENCE_JOIN = """
LEFT JOIN connections c ON c.node_id = n.id
LEFT JOIN instances i ON i.id = c.owner
"""

OWNER_IS_LIVE = "i.last_seen > statement_timestamp() - %(liveness)s::interval"

# The facts, as columns of a statement with the join above; the stamp only speaks for a row nobody holds.
PRESENCE_COLUMNS = f"""
c.node_id IS NOT NULL AS has_row,
coalesce(c.owner <> '', false) AS held,
coalesce(c.owner <> '' AND {OWNER_IS_LIVE}, false) AS owner_live,
coalesce(c.owner = '' AND c.disconnected_at <= statement_timestamp() - %(grace)s::interval, false)
  AS departed_past_grace
"""


def presence_windows(timings: Timings) -> dict[str, Any]:
    """The parameters of the columns above."""
    return {
        "liveness": timedelta(seconds=timings.instance_liveness_s),
        "grace": timedelta(seconds=timings.reconnect_grace_s),
    }


def presence_facts(row: Mapping[str, Any]) -> PresenceFacts:
    """The facts out of a row that selected the columns above."""
    return PresenceFacts(
        has_row=row["has_row"],
        held=row["held"],
        owner_live=row["owner_live"],
        departed_past_grace=row["departed_past_grace"],
    )


def presence_of(facts: PresenceFacts) -> Presence:
    """The rule. A held row is never gone, whatever its stamp says; a departure without a stamp is no verdict."""
    if not facts.has_row:
        return Presence.UNKNOWN
    if facts.held:
        return Presence.CONNECTED if facts.owner_live else Presence.RECONNECTING
    return Presence.GONE if facts.departed_past_grace else Presence.RECONNECTING
