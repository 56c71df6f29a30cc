"""What a registration under a name may do: make the node, be it again, take it over, or wait.

| the name      | its credential | its holder                       | the registration                        |
|---------------|----------------|----------------------------------|-----------------------------------------|
| unknown       |                |                                  | makes a node                            |
| known         | the same       | any                              | is that node again                      |
| known         | another        | connected, or its heartbeat fresh | is told who holds it and when to return |
| known         | another        | neither                          | replaces the credential; journaled      |
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from enum import Enum


class NameTaken(Exception):
    """The name belongs to a node that is alive and has another credential."""

    def __init__(self, name: str, *, holder: str, retry_after_s: float) -> None:
        """`holder` is the id of the node; `retry_after_s` is when it would be stale if it were silent from now on."""
        super().__init__(
            f"node name {name} is taken by node {holder} with another credential; try: another BLACKSTART_NODE_NAME, "
            f"or that node's credential file, or again in {retry_after_s:.1f} s if it is dead"
        )
        self.name = name
        self.holder = holder
        self.retry_after_s = retry_after_s


class RegistrationVerdict(Enum):
    """The last column of the table."""

    SAME = "same"
    REPLACE = "replace"
    TAKEN = "taken"


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The node that has the name now."""

    credential_sha256: str
    connected: bool
    heartbeat_fresh: bool


def judge_registration(holder: Holder, credential_sha256: str) -> RegistrationVerdict:
    """The table, from its second row."""
    if holder.credential_sha256 and hmac.compare_digest(holder.credential_sha256, credential_sha256):
        return RegistrationVerdict.SAME
    if holder.connected or holder.heartbeat_fresh:
        return RegistrationVerdict.TAKEN
    return RegistrationVerdict.REPLACE


def retry_after_s(
    *, heartbeat_age_s: float | None, stale_s: float, connected: bool, liveness_s: float
) -> float:
    """When to ask again: once the holder's heartbeat would be stale; a live tunnel alone is asked for again sooner."""
    left = 0.0 if heartbeat_age_s is None else stale_s - max(0.0, heartbeat_age_s)
    return max(left, liveness_s if connected else 0.0)
