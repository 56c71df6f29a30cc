"""The schedule of a slow direction, on a clock of the spec's own: exact to the nanosecond and the byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blackstart.core.line import MOST_PIECES, NS, Lane, Line
from blackstart.core.shape import CLEAR, UNRATED_IN_FLIGHT, Shape

MS = NS // 1000


def drained(lane: Lane, now_ns: int) -> int:
    """What leaves at this moment."""
    due = lane.due(now_ns)
    lane.passed(due)
    return due


def wakes(lane: Lane, now_ns: int) -> list[tuple[int, int]]:
    """Looking only when the lane says so: when, and how much left then."""
    left = []
    while (at_ns := lane.wake_ns(now_ns)) is not None:
        assert at_ns >= now_ns, "woken in the past"
        now_ns = max(at_ns, now_ns)
        left.append((now_ns, drained(lane, now_ns)))
    return left


def test_delay_alone_moves_every_byte_by_the_same_time() -> None:
    line = Line(Shape(delay_s=0.025))
    lane = line.lane()
    lane.admit(100, 0)
    lane.admit(7, 10 * MS)
    assert drained(lane, 25 * MS - 1) == 0
    assert drained(lane, 25 * MS) == 100
    assert drained(lane, 35 * MS - 1) == 0
    assert drained(lane, 35 * MS) == 7
    assert line.held == 0


def test_control_a_clear_line_passes_at_once_and_holds_nothing_back() -> None:
    lane = Line().lane()
    lane.admit(10**9, 5)
    assert lane.due(5) == 10**9
    assert Line().lane().full(0) is False


def test_a_rate_lets_byte_k_go_after_k_byte_times_and_not_a_nanosecond_before() -> None:
    lane = Line(Shape(bytes_per_s=3)).lane()
    lane.admit(3, 0)
    third = NS // 3
    assert [lane.due(at) for at in (third, third + 1, 2 * third + 1, NS - 1, NS)] == [0, 1, 2, 2, 3]
    lane = Line(Shape.mbit(200, delay_s=0.025)).lane()
    lane.admit(25_000_000, 0)
    assert lane.due(25 * MS) == 0
    assert lane.due(525 * MS) == 12_500_000, "half of a second's worth after half a second and the delay"
    assert lane.due(1025 * MS - 1) == 24_999_999
    assert lane.due(1025 * MS) == 25_000_000


def test_time_lost_by_a_late_shell_is_made_up_and_time_without_bytes_is_not() -> None:
    lane = Line(Shape(bytes_per_s=1000)).lane()
    lane.admit(1000, 0)
    assert drained(lane, 700 * MS) == 700, "late by 700 ms: what was due meanwhile goes at once"
    assert drained(lane, 701 * MS) == 1, "and no more than that"
    assert drained(lane, NS) == 299
    lane.admit(1000, 5 * NS)
    assert lane.due(5 * NS) == 0, "credit was saved up while the line was idle"
    assert lane.due(5 * NS + 500 * MS) == 500


def test_connections_share_the_rate_first_come_first_served() -> None:
    line = Line(Shape(bytes_per_s=1000))
    one, two = line.lane(), line.lane()
    one.admit(500, 0)
    two.admit(10, 0)
    one.admit(500, 0)
    assert (one.due(500 * MS), two.due(500 * MS)) == (500, 0)
    assert (one.due(510 * MS), two.due(510 * MS)) == (500, 10)
    assert (one.due(1010 * MS), two.due(1010 * MS)) == (1000, 10)


def test_a_sender_waits_when_the_queue_is_full_and_not_while_the_product_fills() -> None:
    shape = Shape(delay_s=1, bytes_per_s=1_000_000)
    lane = Line(shape).lane()
    now_ns = admitted = 0
    while (
        now_ns < NS
    ):  # nothing can leave for a second; a sender that is always ready fills the line meanwhile
        if not lane.full(now_ns):
            lane.admit(1000, now_ns)
            admitted += 1000
        now_ns += MS // 2
    assert admitted >= 1_000_000, "the delay lowered the throughput"
    assert admitted <= shape.in_flight_bytes + 1000, "more is under way than was promised"
    blocked = lane.held
    for _ in range(100):  # nobody takes what is due: the bound holds all the same
        now_ns += NS
        if not lane.full(now_ns):
            lane.admit(1000, now_ns)
    assert blocked <= lane.held <= shape.in_flight_bytes + 1000


def test_a_full_queue_says_when_there_is_room_and_there_is_none_before() -> None:
    shape = Shape(delay_s=60, bytes_per_s=100_000)
    lane = Line(shape).lane()
    lane.admit(shape.queue_bytes + 50_000, 0)
    assert lane.full(0)
    assert lane.wake_ns(0) == 500 * MS
    assert (lane.full(500 * MS - 1), lane.full(500 * MS)) == (True, False)
    assert lane.wake_ns(500 * MS) == 60 * NS + NS // 100_000, (
        "the first byte is due before any look is worth it"
    )


def test_without_a_rate_a_delayed_line_still_holds_a_bounded_amount() -> None:
    lane = Line(Shape(delay_s=60)).lane()
    lane.admit(UNRATED_IN_FLIGHT, 0)
    assert not lane.full(0)
    lane.admit(1, 0)
    assert lane.full(0)
    tiny = Line(Shape(delay_s=60)).lane()
    for at_ns in range(MOST_PIECES):
        tiny.admit(1, at_ns)
    assert tiny.full(MOST_PIECES), "one-byte pieces cost memory too"


def test_a_sender_that_never_stops_costs_one_piece() -> None:
    lane = Line(Shape(bytes_per_s=1000)).lane()
    for at_ns in range(0, NS, NS // 1000):
        lane.admit(10, at_ns)
    assert len(lane._pieces) == 1


def test_a_lower_delay_lets_go_what_has_waited_long_enough_and_a_higher_one_keeps_it() -> None:
    line = Line(Shape(delay_s=10))
    lane = line.lane()
    lane.admit(5, 0)
    line.reshape(Shape(delay_s=1), NS)
    assert lane.due(NS) == 5
    lane.passed(2)
    line.reshape(Shape(delay_s=3), NS)
    assert lane.due(NS) == 0
    assert lane.due(3 * NS) == 3


def test_another_rate_holds_for_what_is_not_carried_yet_and_keeps_the_order_of_all() -> None:
    line = Line(Shape(delay_s=1, bytes_per_s=100))
    one, two = line.lane(), line.lane()
    one.admit(150, 0)
    two.admit(100, 0)
    one.admit(100, 0)
    line.reshape(Shape(delay_s=1, bytes_per_s=1000), NS)
    assert (one.due(2 * NS), two.due(2 * NS)) == (100, 0), "what is carried keeps its time"
    assert (one.due(2050 * MS), two.due(2050 * MS)) == (150, 0)
    assert (one.due(2150 * MS), two.due(2150 * MS)) == (150, 100)
    assert (one.due(2250 * MS), two.due(2250 * MS)) == (250, 100)
    assert line.held == 350


def test_a_line_made_clear_lets_go_everything_at_once() -> None:
    line = Line(Shape(delay_s=60, bytes_per_s=1))
    lane = line.lane()
    lane.admit(10_000, 0)
    assert lane.due(NS) == 0
    line.reshape(CLEAR, NS)
    assert drained(lane, NS) == 10_000
    assert lane.wake_ns(NS) is None


def test_a_blocked_lane_asks_for_no_look_it_could_not_use() -> None:
    lane = Line(Shape(delay_s=1)).lane()
    lane.admit(5, 0)
    assert lane.wake_ns(0) == NS
    assert lane.wake_ns(0, blocked=True) is None


def test_a_closed_lane_holds_nothing() -> None:
    line = Line(Shape(delay_s=1))
    lane = line.lane()
    lane.admit(5, 0)
    lane.close()
    assert (line.held, lane.due(2 * NS), lane.wake_ns(0)) == (0, 0, None)


@pytest.mark.parametrize("rate", [1, 7, 1000, 999_999_937])
def test_looking_only_when_told_lets_everything_go_in_few_looks_and_never_early(rate: int) -> None:
    lane = Line(Shape(bytes_per_s=rate, delay_s=0.01)).lane()
    lane.admit(100, 0)
    looks = wakes(lane, 0)
    gone = 0
    for at_ns, left in looks:
        assert left, "woken for nothing"
        gone += left
        assert gone * NS <= (at_ns - 10 * MS) * rate
    assert gone == 100
    assert len(looks) <= 100


SHAPES = st.builds(
    Shape,
    delay_s=st.sampled_from([0.0, 0.001, 0.05, 1.0]),
    bytes_per_s=st.sampled_from([None, 1, 1000, 123_457, 25_000_000]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.integers(0, 1), st.integers(1, 100_000)),
        st.tuples(st.just("wait"), st.integers(0, 2 * NS), st.just(0)),
        st.tuples(st.just("drain"), st.integers(0, 1), st.integers(1, 100_000)),
        st.tuples(st.just("shape"), SHAPES, st.just(0)),
    ),
    max_size=40,
)


@settings(deadline=None)  # a busy machine is slow, not wrong
@given(first=SHAPES, steps=STEPS)
def test_whatever_happens_nothing_is_lost_doubled_or_let_go_faster_than_the_fastest_rate(
    first: Shape, steps: list[tuple[str, object, int]]
) -> None:
    line = Line(first)
    lanes = [line.lane(), line.lane()]
    came, left = [0, 0], [0, 0]
    now_ns, rates = 0, [first.bytes_per_s]
    for step, which, amount in steps:
        if step == "shape":
            assert isinstance(which, Shape)
            line.reshape(which, now_ns)
            rates.append(which.bytes_per_s)
            continue
        assert isinstance(which, int)
        if step == "wait":
            now_ns += which
        elif step == "admit":
            lanes[which].admit(amount, now_ns)
            came[which] += amount
        else:
            gone = min(amount, lanes[which].due(now_ns))
            lanes[which].passed(gone)
            left[which] += gone
        for number, lane in enumerate(lanes):
            assert lane.held == came[number] - left[number]
            assert 0 <= lane.due(now_ns) <= lane.held
        bounded = [rate for rate in rates if rate is not None]
        if len(bounded) == len(rates):
            due = sum(lane.due(now_ns) for lane in lanes)
            assert sum(left) + due <= max(bounded) * now_ns / NS
    for number, lane in enumerate(lanes):
        far_ns = now_ns + 10**9 * NS
        left[number] += drained(lane, far_ns)
        assert (left[number], lane.held) == (came[number], 0)
