"""The outcome table and the errors behind it: none of them is absence, wherever a walker looks."""

from __future__ import annotations

import pytest

from inference_fleet.route import OUTCOMES, NoRoute, NotOwner, PeerUnreachable, RouteError, RouteOutcome
from inference_fleet.route.outcomes import (
    AbsenceClaim,
    CallerExpired,
    InstanceNotFound,
    NoConnection,
    NoRelayPath,
    NothingLearned,
    OwnerUnknown,
    TunnelFailed,
    WorkerRefused,
    carries_absence,
    is_absence_claim,
    route_failure,
)

_KINDS: list[type[NoRoute]] = [
    NoRelayPath,
    NotOwner,
    PeerUnreachable,
    TunnelFailed,
    NothingLearned,
    OwnerUnknown,
]


@pytest.mark.holds("B-54", "B-70")
def test_every_outcome_has_its_row_and_none_is_absence() -> None:
    assert set(OUTCOMES) == set(RouteOutcome)
    assert not any(rule.absence for rule in OUTCOMES.values())
    assert [outcome for outcome, rule in OUTCOMES.items() if rule.evidence] == [RouteOutcome.ANSWERED]


@pytest.mark.holds("B-54")
def test_conditions_stay_apart_under_one_umbrella() -> None:
    for kind in _KINDS:
        error = kind("n", "why")
        assert isinstance(error, NoRoute)
        assert [other for other in _KINDS if isinstance(error, other)] == [kind]
        assert "no route to node n: why" in str(error)
    every: list[type[RouteError]] = [*_KINDS, NoRoute, CallerExpired]
    assert len({kind.outcome for kind in every}) == len(every)
    assert not issubclass(CallerExpired, NoRoute)
    assert not issubclass(WorkerRefused, RouteError), "a worker's answer carries no umbrella"


def test_both_halves_of_the_absence_claim_are_seen() -> None:
    assert is_absence_claim(NoConnection("nobody holds it")), "no connection is an absence claim"
    assert is_absence_claim(InstanceNotFound("its holder is dead")), "a dead instance is an absence claim"
    assert not is_absence_claim(NoRoute("n", "why"))


@pytest.mark.holds("B-55")
def test_an_absence_claim_stays_in_the_message_and_out_of_every_chain() -> None:
    for claim in (NoConnection("nobody holds it"), InstanceNotFound("its holder is dead")):
        failure = route_failure("n", claim)
        assert str(claim) in str(failure)
        assert not carries_absence(failure), "an absence claim can be found in the chain"


@pytest.mark.holds("B-55")
def test_a_claim_hidden_deep_in_an_error_does_not_travel_with_it_either() -> None:
    deep = ExceptionGroup("several", [ValueError("x"), _caused_by(NoConnection("nobody holds it"))])
    assert carries_absence(deep), "the control: the walker finds it"
    assert not carries_absence(route_failure("n", deep, TunnelFailed)), (
        "an absence claim can be found in the chain"
    )


def test_a_walker_follows_context_as_well_as_cause() -> None:
    hidden = RuntimeError("while handling")
    hidden.__context__ = InstanceNotFound("its holder is dead")
    assert carries_absence(hidden)


@pytest.mark.holds("B-55")
def test_other_causes_are_kept_and_kinds_stay_matchable() -> None:
    cause = ConnectionResetError("reset")
    failure = route_failure("n", cause, PeerUnreachable)
    assert isinstance(failure, PeerUnreachable)
    assert failure.__cause__ is cause
    owner = NotOwner("n", "not here")
    assert route_failure("n", owner, TunnelFailed) is owner


def _caused_by(cause: AbsenceClaim) -> RuntimeError:
    error = RuntimeError("outer")
    error.__cause__ = cause
    return error
