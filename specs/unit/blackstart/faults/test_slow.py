"""A slowed link counts only when the link itself measures it; only what could not be under it speaks against it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from blackstart.core.fault import Evidence, FaultNotConfirmed, Finding
from blackstart.core.shape import CLEAR, Shape
from blackstart.faults import standing
from blackstart.faults.slow import Slowed, judge, judge_lifted, together
from blackstart.net.proxy_link import Link, Passage
from blackstart.record import Journal, read_journal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specs.unit.blackstart.faults.conftest import Rig

WITHIN_S = 30.0
SHORT_S = 0.5
WAN = Shape(delay_s=0.025, bytes_per_s=1_000_000)
CONFIRMED, MISMATCH, INCONCLUSIVE = Finding.CONFIRMED, Finding.MISMATCH, Finding.INCONCLUSIVE


@pytest.fixture
def link(rig: Rig) -> Iterator[Link]:
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        Link(rig.spawner, rig.run, target_port=target.getsockname()[1]) as child,
    ):
        yield child


@pytest.fixture
def journal(rig: Rig) -> Iterator[Journal]:
    with Journal(rig.run, writer="slow") as own:
        yield own


def took(byte_s: float, train_s: float, train_bytes: int = 100_000) -> Passage:
    return Passage(byte_s=byte_s, train_bytes=train_bytes, train_s=train_s)


@pytest.mark.parametrize(
    ("shape", "passage", "finding"),
    [
        pytest.param(WAN, took(0.0251, 0.126), CONFIRMED, id="as told"),
        pytest.param(WAN, took(0.0251, 0.3), CONFIRMED, id="others use the line too"),
        pytest.param(WAN, took(0.0249, 0.126), MISMATCH, id="a byte that was early"),
        pytest.param(WAN, took(0.0251, 0.1249), MISMATCH, id="a train that was too fast"),
        pytest.param(WAN, took(0.0251, 0.02), MISMATCH, id="a train without even the delay"),
        pytest.param(WAN, took(0.5, 0.7), INCONCLUSIVE, id="a machine that stands still"),
        pytest.param(WAN, took(0.0251, 9.0), INCONCLUSIVE, id="a rate that nobody gets"),
        pytest.param(Shape(delay_s=0.025), took(0.0251, 0.0252), CONFIRMED, id="delay alone"),
        pytest.param(Shape(bytes_per_s=1_000_000), took(0.0001, 0.101), CONFIRMED, id="rate alone"),
        pytest.param(CLEAR, took(0.0001, 0.001), CONFIRMED, id="a direction left alone"),
    ],
)
def test_only_the_impossible_is_a_mismatch(shape: Shape, passage: Passage, finding: Finding) -> None:
    assert judge("up", shape, passage).finding is finding


@pytest.mark.parametrize(
    ("before", "passage", "finding"),
    [
        pytest.param(CLEAR, took(0.0001, 0.001), CONFIRMED, id="fast again"),
        pytest.param(CLEAR, took(0.03, 0.031), INCONCLUSIVE, id="a byte as late as under it"),
        pytest.param(CLEAR, took(0.0001, 0.2), INCONCLUSIVE, id="a train as slow as under it"),
        pytest.param(Shape(delay_s=1), took(1.01, 1.02), CONFIRMED, id="slower before: nothing to see"),
        pytest.param(Shape(bytes_per_s=1000), took(0.001, 100.0), CONFIRMED, id="a lower rate before"),
    ],
)
def test_lifted_is_what_could_not_be_under_the_fault(
    before: Shape, passage: Passage, finding: Finding
) -> None:
    assert judge_lifted("up", WAN, before, passage).finding is finding


@pytest.mark.parametrize(
    ("looks", "finding"),
    [
        ([CONFIRMED, CONFIRMED], CONFIRMED),
        ([CONFIRMED, INCONCLUSIVE], INCONCLUSIVE),
        ([INCONCLUSIVE, MISMATCH], MISMATCH),
        ([MISMATCH, CONFIRMED], MISMATCH),
    ],
)
def test_both_directions_must_show_it(looks: list[Finding], finding: Finding) -> None:
    assert together([Evidence(look, "seen") for look in looks]) == Evidence(finding, "seen; seen")


def test_a_fault_that_slows_nothing_is_refused(link: Link) -> None:
    with pytest.raises(ValueError, match="neither delays nor paces"):
        Slowed(link)


def test_a_link_is_slow_inside_the_block_and_as_before_behind_it(
    rig: Rig, journal: Journal, link: Link
) -> None:
    before = Shape(delay_s=0.001)
    link.slow(down=before)
    fault = Slowed(link, up=WAN)
    with standing(fault, journal=journal, ledger=rig.spawner.ledger, user=None, within_s=WITHIN_S) as stands:
        assert stands.evidence.confirmed
        assert link.status().up.shape == WAN
        assert fault.confirm_lifted().finding is MISMATCH, "it reads as lifted while it is in"
    assert (link.status().up.shape, link.status().down.shape) == (CLEAR, before)
    told = [event.data for event in read_journal(rig.run.dir) if event.kind == "fault"]
    assert [event["step"] for event in told] == ["inject", "confirm", "lift"]
    assert told[0]["fault"] == "link slowed: up 25 ms, 1000000 B/s, down clear"
    assert "a byte took" in told[1]["seen"]


def test_a_slow_link_made_fast_behind_its_back_is_a_mismatch(rig: Rig, journal: Journal, link: Link) -> None:
    fault = Slowed(link, up=Shape(delay_s=1))
    with (
        pytest.raises(FaultNotConfirmed, match="mismatch: up: a byte took"),
        standing(fault, journal=journal, ledger=rig.spawner.ledger, user=None, within_s=SHORT_S, late=True),
    ):
        link.slow(up=CLEAR)


def test_a_link_that_cannot_be_asked_shows_nothing(link: Link) -> None:
    fault = Slowed(link, up=Shape(delay_s=5), probe_s=SHORT_S)
    fault.inject()
    assert fault.confirm().finding is INCONCLUSIVE, "not over in time"
    fault.lift()
    assert fault.confirm_lifted().finding is CONFIRMED
