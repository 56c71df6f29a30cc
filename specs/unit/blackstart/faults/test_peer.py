"""A cut between two nodes stands on both roads, and counts once somebody met it on either."""

from __future__ import annotations

import http.client
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from specs.unit.blackstart.faults.test_tunnel import backend

from blackstart.core.fault import Finding
from blackstart.faults.peer import PeerCut
from blackstart.net.balancer import Balancer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specs.unit.blackstart.faults.conftest import Rig

__all__ = ["backend"]

PATH = "^/peer$"
WITHIN_S = 10.0


@pytest.fixture
def roads(rig: Rig, backend: str) -> Iterator[list[Balancer]]:
    with (
        Balancer(rig.spawner, rig.run, backends=[backend], node="road-0") as one,
        Balancer(rig.spawner, rig.run, backends=[backend], node="road-1") as two,
    ):
        yield [one, two]


def passes(road: Balancer) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", road.port, timeout=WITHIN_S)
    try:
        with suppress(ConnectionError):
            connection.request("GET", "/peer")
            return connection.getresponse().status == 200
        return False
    finally:
        connection.close()


def test_a_cut_stands_on_both_roads_until_it_is_lifted(roads: list[Balancer]) -> None:
    assert [passes(road) for road in roads] == [True, True]
    cut = PeerCut(roads, PATH)
    cut.inject()
    assert [passes(road) for road in roads] == [False, False], "one way is still open"
    assert cut.confirm_lifted().finding is Finding.MISMATCH
    cut.lift()
    assert cut.confirm_lifted().finding is Finding.CONFIRMED
    assert [passes(road) for road in roads] == [True, True]


@pytest.mark.parametrize("way", [0, 1])
def test_a_cut_is_confirmed_by_a_dial_that_met_it_either_way_and_by_nothing_less(
    roads: list[Balancer], way: int
) -> None:
    cut = PeerCut(roads, PATH)
    cut.inject()
    assert cut.confirm().finding is Finding.INCONCLUSIVE, "confirmed before anybody dialled"
    assert not passes(roads[way])
    assert cut.confirm().finding is Finding.CONFIRMED


def test_a_cut_that_one_road_lets_through_is_a_mismatch_whatever_the_other_does(
    roads: list[Balancer],
) -> None:
    cut = PeerCut(roads, PATH)
    cut.inject()
    roads[1].lift(roads[1].rules[-1].id)
    assert [passes(road) for road in roads] == [False, True]
    assert cut.confirm().finding is Finding.MISMATCH
