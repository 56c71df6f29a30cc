"""Every way a stream is refused, in one table that writer, reader and every consumer share.

| code          | sent when                                                         | evidence: may a row be reaped |
|---------------|-------------------------------------------------------------------|-------------------------------|
| `tag-unknown` | the worker does not know the tag                                  | yes: the worker's answer      |
| `unavailable` | nothing answers at the target, or another process has the port    | yes: the worker's answer      |
| `invalid`     | the request cannot be read, or its target makes no sense          | yes: the worker's answer      |
| `not-served`  | the worker learned nothing: time ran out, its own shortage, a bug | no                            |
| `stale-epoch` | the request comes over an ownership that was superseded           | no                            |
| `not-owner`   | a replica was asked to relay to a worker it does not hold         | no                            |

A code this version does not know is not evidence: a newer worker's vocabulary costs a retry, never a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Refusal(Enum):
    """The vocabulary; what each value means and permits is in `REFUSALS`."""

    TAG_UNKNOWN = "tag-unknown"
    UNAVAILABLE = "unavailable"
    INVALID = "invalid"
    NOT_SERVED = "not-served"
    STALE_EPOCH = "stale-epoch"
    NOT_OWNER = "not-owner"


@dataclass(frozen=True)
class RefusalRule:
    """One row: the code on the wire, whether it is the worker's own answer, and what it tells an operator."""

    code: str
    evidence: bool
    meaning: str


REFUSALS: Final[dict[Refusal, RefusalRule]] = {
    Refusal.TAG_UNKNOWN: RefusalRule("tag-unknown", True, "the worker serves no such kind of stream"),
    Refusal.UNAVAILABLE: RefusalRule("unavailable", True, "nothing answers at the target on the worker"),
    Refusal.INVALID: RefusalRule("invalid", True, "the request makes no sense to the worker"),
    Refusal.NOT_SERVED: RefusalRule("not-served", False, "nothing was learned about the target"),
    Refusal.STALE_EPOCH: RefusalRule("stale-epoch", False, "the request came over a superseded ownership"),
    Refusal.NOT_OWNER: RefusalRule("not-owner", False, "the replica asked does not hold the worker's tunnel"),
}
_BY_CODE: Final = {rule.code: refusal for refusal, rule in REFUSALS.items()}
UNKNOWN: Final = "unknown"
REFUSAL_LABELS: Final = (*_BY_CODE, UNKNOWN)


def refusal_of(code: str) -> Refusal | None:
    """The refusal of a wire code; None for one this version does not know, which is never evidence."""
    return _BY_CODE.get(code)


def refusal_label(code: str) -> str:
    """What a refusal is counted under: its wire code, or `unknown` for all that this version does not know."""
    return code if code in _BY_CODE else UNKNOWN


def is_evidence(code: str) -> bool:
    """Whether a refusal with this wire code is the worker's own answer about its target."""
    refusal = refusal_of(code)
    return refusal is not None and REFUSALS[refusal].evidence


class StreamRefused(Exception):
    """The far side answered the request with a refusal."""

    def __init__(self, code: str, message: str) -> None:
        """`code` as it was on the wire, known here or not."""
        self.code = code
        self.message = message
        self.refusal = refusal_of(code)
        self.evidence = is_evidence(code)
        super().__init__(f"refused as {code}: {message}")
