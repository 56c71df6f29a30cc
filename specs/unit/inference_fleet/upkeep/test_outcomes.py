"""One table says what each outcome permits, and what is not in it permits nothing."""

from __future__ import annotations

from itertools import product

import pytest

from inference_fleet.cluster import Presence
from inference_fleet.roster.frontend import NodeStatus, StatusFacts, is_demotion, judge_status
from inference_fleet.route.outcomes import RouteOutcome
from inference_fleet.tunnel.refusals import REFUSALS
from inference_fleet.upkeep import PERMITS, Fact, Permit, Source, permits

NOTHING = Permit()


@pytest.mark.parametrize("outcome", list(RouteOutcome))
def test_no_way_a_route_ends_permits_anything(outcome: RouteOutcome) -> None:
    assert (Source.ROUTE, outcome.value) in PERMITS, f"{outcome} is not in the table"
    assert permits(Source.ROUTE, outcome) == NOTHING


def test_a_refusal_deletes_the_row_it_is_about_exactly_where_it_is_evidence() -> None:
    deleting = {
        code for (source, code), permit in PERMITS.items() if source is Source.ANSWER and permit.delete_row
    }
    assert deleting == {"unavailable", "invalid", "tag-unknown"}
    for rule in REFUSALS.values():
        assert permits(Source.ANSWER, rule.code) == Permit(delete_row=rule.evidence)


@pytest.mark.parametrize("source", list(Source))
def test_what_nobody_here_knows_permits_nothing(source: Source) -> None:
    permit = permits(source, "an-outcome-of-a-later-release")
    assert permit == NOTHING, f"an unknown {source} permits {permit}"


def test_a_failed_control_call_demotes_nobody() -> None:
    assert permits(Source.CONTROL, "failed") == NOTHING


def test_a_failed_presence_read_is_no_verdict() -> None:
    assert permits(Source.FACT, Fact.PRESENCE_UNREAD) == NOTHING


@pytest.mark.holds("B-18")
def test_of_the_four_presences_only_gone_is_acted_upon() -> None:
    acting = {presence for presence in Presence if permits(Source.FACT, presence) != NOTHING}
    assert acting == {Presence.GONE}


@pytest.mark.parametrize(("presence", "fresh"), list(product(Presence, (True, False))))
def test_the_status_machine_does_what_the_table_permits_and_no_more(
    presence: Presence, *, fresh: bool
) -> None:
    if fresh:
        permit = permits(Source.FACT, presence)
    else:
        fact = Fact.HEARTBEAT_PATH if presence is Presence.CONNECTED else Fact.HEARTBEAT_DEAD
        permit = permits(Source.FACT, fact)
    judged = judge_status(
        StatusFacts(
            approved=True,
            draining=False,
            heartbeat_fresh=fresh,
            presence=presence,
            before=NodeStatus.HEALTHY,
        )
    )
    assert is_demotion(NodeStatus.HEALTHY, judged.status) == permit.demote
    assert judged.delete_models == permit.delete_models
    assert (judged.status is not NodeStatus.HEALTHY) == permit.stop_placing
