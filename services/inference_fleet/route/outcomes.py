"""How an attempt to reach a worker ended, and what that permits: one table, and none of it is absence.

A route failure says what *this* replica could not do *now*. Whether a worker is gone is decided by its
heartbeat and its presence, never here, so no error of this module carries an absence sentinel where a
walker could find it: not as itself, not as cause, not as context.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from inference_fleet.tunnel.refusals import StreamRefused


class RouteOutcome(StrEnum):
    """The closed vocabulary of `blackstart_dials_total{outcome}`."""

    OPENED = "opened"
    ANSWERED = "answered"
    CALLER_EXPIRED = "caller-expired"
    NO_CONNECTION = "no-connection"
    NO_RELAY_PATH = "no-relay-path"
    STALE_OWNER = "stale-owner"
    PEER_UNREACHABLE = "peer-unreachable"
    TUNNEL_FAILED = "tunnel-failed"
    NOTHING_LEARNED = "nothing-learned"
    OWNER_UNKNOWN = "owner-unknown"


@dataclass(frozen=True)
class OutcomeRule:
    """What one outcome means and permits."""

    meaning: str
    evidence: bool = False
    """Whether the worker itself said something about the process that was asked for."""
    try_another: bool = False
    """Whether the same request may be tried at another candidate, nothing having been done with it."""
    absence: bool = False
    """Whether it says the worker is gone. Never: the column exists so that a spec can hold it."""


OUTCOMES: dict[RouteOutcome, OutcomeRule] = {
    RouteOutcome.OPENED: OutcomeRule("a stream to the worker, past its handshake"),
    RouteOutcome.ANSWERED: OutcomeRule(
        "the worker itself refused, and its refusal is evidence about that process",
        evidence=True,
        try_another=True,
    ),
    RouteOutcome.CALLER_EXPIRED: OutcomeRule(
        "the caller's own deadline passed first; nobody else is to blame"
    ),
    RouteOutcome.NO_CONNECTION: OutcomeRule(
        "no live replica holds the worker's tunnel at this moment", try_another=True
    ),
    RouteOutcome.NO_RELAY_PATH: OutcomeRule(
        "the owner is present but cannot be dialled, or replicas do not trust each other here",
        try_another=True,
    ),
    RouteOutcome.STALE_OWNER: OutcomeRule(
        "whoever was named as owner holds the tunnel no longer, twice in a row", try_another=True
    ),
    RouteOutcome.PEER_UNREACHABLE: OutcomeRule(
        "the owning replica does not answer this one", try_another=True
    ),
    RouteOutcome.TUNNEL_FAILED: OutcomeRule(
        "the tunnel died or stayed silent while the stream opened", try_another=True
    ),
    RouteOutcome.NOTHING_LEARNED: OutcomeRule(
        "the worker declined without saying anything about the process", try_another=True
    ),
    RouteOutcome.OWNER_UNKNOWN: OutcomeRule("the database did not say who owns the tunnel", try_another=True),
}


class AbsenceClaim(Exception):
    """What the ownership table's liveness join says. It ends where it is raised and is never passed on."""


class NoConnection(AbsenceClaim):
    """No replica is recorded as holding the tunnel."""


class InstanceNotFound(AbsenceClaim):
    """The replica recorded as holding the tunnel is not alive."""


class RouteError(Exception):
    """A request did not get through; `outcome` says how."""

    outcome: ClassVar[RouteOutcome]

    def __init__(self, node_id: str, message: str) -> None:
        self.node_id = node_id
        super().__init__(message)


class CallerExpired(RouteError):
    """The caller's deadline passed. Says nothing about worker, tunnel or peer."""

    outcome = RouteOutcome.CALLER_EXPIRED


class NoRoute(RouteError):
    """This replica could not get a request to the worker. No claim about the worker."""

    outcome = RouteOutcome.NO_CONNECTION

    def __init__(self, node_id: str, why: str) -> None:
        super().__init__(node_id, f"no route to node {node_id}: {why}")


class NoRelayPath(NoRoute):
    """The owner cannot be dialled from here."""

    outcome = RouteOutcome.NO_RELAY_PATH


class NotOwner(NoRoute):
    """Whoever was asked does not hold the tunnel under that epoch."""

    outcome = RouteOutcome.STALE_OWNER


class PeerUnreachable(NoRoute):
    """The owning replica does not answer."""

    outcome = RouteOutcome.PEER_UNREACHABLE


class TunnelFailed(NoRoute):
    """The tunnel died or stayed silent while the stream opened."""

    outcome = RouteOutcome.TUNNEL_FAILED


class NothingLearned(NoRoute):
    """A refusal whose code this replica does not know: a newer vocabulary costs a retry, not a row."""

    outcome = RouteOutcome.NOTHING_LEARNED


class OwnerUnknown(NoRoute):
    """The database could not be asked who owns the tunnel."""

    outcome = RouteOutcome.OWNER_UNKNOWN


class WorkerRefused(StreamRefused):
    """The worker's own refusal, with the node and the ownership it was heard over; `.evidence` says what it is worth."""

    def __init__(self, node_id: str, epoch: int, code: str, message: str) -> None:
        super().__init__(code, message)
        self.node_id = node_id
        self.epoch = epoch
        self.outcome = RouteOutcome.ANSWERED if self.evidence else RouteOutcome.NOTHING_LEARNED


def is_absence_claim(error: BaseException) -> bool:
    """Whether this very error says a worker or its replica is absent."""
    return isinstance(error, NoConnection) or isinstance(error, InstanceNotFound)  # noqa: SIM101 -- each half has its own mutation


def carries_absence(error: BaseException | None) -> bool:
    """Whether an absence claim can be found in an error by any walker: itself, cause, context, group."""
    seen: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        if is_absence_claim(one):
            return True
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
    return False


def route_failure(node_id: str, error: BaseException, kind: type[NoRoute] = NoRoute) -> NoRoute:
    """The one place where a failure to resolve or open becomes a `NoRoute`; raise it outside any `except`.

    A failure that already is one keeps its kind. Everything else is kept as the cause, unless an absence
    claim hides in it: that stays in the message alone.
    """
    if isinstance(error, NoRoute):
        return error
    failure = kind(node_id, str(error) or type(error).__name__)
    if not carries_absence(error):
        failure.__cause__ = error
    return failure
