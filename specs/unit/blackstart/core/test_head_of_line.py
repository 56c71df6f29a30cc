"""What is claimed of small requests beside a bulk transfer, and what is not: figures by hand, both sides of each bound."""

from __future__ import annotations

import pytest

from blackstart.core.head_of_line import WINDOW_FACTOR, Beside, objections

EMPTY = Beside(window=0.01, probes=[0.002, 0.004, 0.003])
BULK = Beside(window=1.0, probes=[0.02, 0.2, 0.03, 0.04])
TIMES = 60.0


def said(*, bulk: Beside = BULK, empty: Beside = EMPTY) -> str:
    return "; ".join(objections(empty=empty, bulk=bulk, times=TIMES))


@pytest.mark.holds("B-240")
def test_latency_that_bulk_costs_is_no_objection_as_long_as_service_is_kept() -> None:
    """Every small request is ten times slower, the median too: the worst is a small part of the window all the same."""
    assert said() == ""
    slower = Beside(window=1.0, probes=[0.04] * 20)
    assert min(slower.probes) >= 10 * max(EMPTY.probes)
    assert said(bulk=slower) == ""


@pytest.mark.holds("B-238")
def test_a_small_request_that_took_more_than_half_the_window_was_parked() -> None:
    slow = Beside(window=0.05, probes=[0.04] * 20)  # so that proportion says nothing
    assert said(bulk=Beside(window=1.0, probes=[0.01, 0.5]), empty=slow) == ""
    parked = said(bulk=Beside(window=1.0, probes=[0.01, 0.51]), empty=slow)
    assert parked.startswith("a small request was parked: the worst took 510.0 of the transfer's 1000.0 ms")
    assert "proportion" not in parked


@pytest.mark.holds("B-238")
def test_a_small_request_may_not_wait_out_of_proportion_however_long_the_window_is() -> None:
    assert said(bulk=Beside(window=10.0, probes=[0.239])) == ""
    assert said(bulk=Beside(window=10.0, probes=[0.241])).startswith(
        "a small request waited out of proportion"
    )
    # the control: where the machine is that slow with nothing to move, it is in proportion
    assert said(bulk=Beside(window=10.0, probes=[0.241]), empty=Beside(window=0.01, probes=[0.005])) == ""


@pytest.mark.holds("B-239")
def test_a_transfer_that_moved_nothing_is_told_before_any_latency_is_read() -> None:
    parked = [0.9]
    too_short = Beside(window=EMPTY.window * WINDOW_FACTOR * 0.99, probes=parked)
    alone = objections(empty=EMPTY, bulk=too_short, times=TIMES)
    assert len(alone) == 1
    assert alone[0].startswith("nothing was in the way: the transfer took 79.2 ms")
    real = Beside(window=EMPTY.window * WINDOW_FACTOR, probes=parked)
    assert said(bulk=real).startswith("a small request was parked")


@pytest.mark.holds("B-241")
@pytest.mark.parametrize(
    ("count", "told"),
    [
        (9, []),
        (10, ["p50_ms"]),
        (49, ["p50_ms"]),
        (50, ["p50_ms", "p90_ms"]),
        (499, ["p50_ms", "p90_ms"]),
        (500, ["p50_ms", "p90_ms", "p99_ms"]),
    ],
)
def test_a_quantile_is_told_only_where_five_of_the_sample_lie_above_it(count: int, told: list[str]) -> None:
    sample = Beside(window=1.0, probes=[number / 1000 for number in range(count, 0, -1)])
    figures = sample.told
    assert [name for name in figures if name.startswith("p") and name != "probes"] == told
    assert figures["worst_ms"] == count
    for name in told[1:]:
        assert figures[name] < count, "a quantile that is the worst one says nothing"
    if count == 500:
        assert (figures["p50_ms"], figures["p90_ms"], figures["p99_ms"]) == (250.5, 450.0, 495.0)
