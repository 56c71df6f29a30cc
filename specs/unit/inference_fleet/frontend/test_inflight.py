"""What is in flight, and the order in which candidates are tried."""

from __future__ import annotations

import pytest

from inference_fleet.frontend.inflight import InFlight
from inference_fleet.roster.frontend import Candidate


def candidates(*nodes: str) -> list[Candidate]:
    return [Candidate(node_id=n, node_name=n, model="m", port=1, process_key="m#1") for n in nodes]


def test_the_least_loaded_comes_first_and_equals_take_turns() -> None:
    flight = InFlight()
    three = candidates("a", "b", "c")
    assert {flight.order(three)[0].node_id for _ in range(3)} == {"a", "b", "c"}
    with flight.counted("a"), flight.counted("a"), flight.counted("b"):
        assert [each.node_id for each in flight.order(three)] == ["c", "b", "a"]
    assert flight.order([]) == []


def test_a_count_ends_with_its_request_however_that_ends() -> None:
    flight = InFlight()
    with pytest.raises(ZeroDivisionError), flight.counted("a"):
        _ = flight.of("a") / 0
    assert flight.of("a") == 0
    assert not flight._counts, "a node without requests costs nothing"
