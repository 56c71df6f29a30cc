"""Two ends under every interleaving hypothesis can think of, against a model of per-stream order and credit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from blackstart.pytest_plugin.options import options_of
from inference_fleet.tunnel.errors import StreamLimit
from inference_fleet.tunnel.yamux import Limits
from inference_fleet.tunnel.yamux.wire import INITIAL_WINDOW

from .ends import End, pair, settle

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLES, STEPS = 200, 50
_LIMITS = Limits(
    open_streams=6, half_open_streams=3, growth_pool=3 * INITIAL_WINDOW, largest_window=3 * INITIAL_WINDOW
)
_STEP_S = 0.5
_FIRED: Counter[str] = Counter()
_SIDES = st.sampled_from(["client", "server"])
_PICK = st.integers(0, 1000)
_PIECES = st.one_of(st.integers(1, 30), st.integers(1, 70_000), st.just(1 << 30))
_AMOUNTS = st.one_of(st.integers(1, 100), st.integers(60_000, 140_000), st.integers(250_000, 400_000))


class TwoEnds(RuleBasedStateMachine):
    """What both shells did is the model; what each core says is checked against it after every step."""

    def __init__(self) -> None:
        super().__init__()
        _FIRED["examples"] += 1
        self.ends: dict[str, End] = dict(zip(("client", "server"), pair(_LIMITS), strict=True))
        self.pinged = dict.fromkeys(self.ends, 0)
        self.left: set[str] = set()
        self.now = 0.0

    # ---- picking: the side that was drawn, or the other one when that has nothing to do

    def choose(self, side: str, number: int, wanted: Callable[[End, int], bool]) -> tuple[End, int] | None:
        """Some living stream that fits; streams not yet accepted are not the shell's to touch."""
        for end in (self.ends[side], self.ends[side].other):
            living = [s for s in range(1, 60) if end.mux.alive(s) and s not in end.unaccepted]
            choice = [stream for stream in living if wanted(end, stream)]
            if choice:
                return end, choice[number % len(choice)]
        return None

    def some(self) -> bool:
        return any(end.mux.streams for end in self.ends.values())

    # ---- rules

    @initialize(streams=st.integers(0, 3))
    def begin(self, streams: int) -> None:
        """Most interleavings need streams that are already there."""
        for end in self.ends.values():
            end.mux.ping(self.now)
            end.transmit()
        for end in self.ends.values():
            end.deliver(1 << 30)
            end.transmit()
        self.now += _STEP_S
        for end in self.ends.values():
            end.deliver(1 << 30, self.now)
            for _ in range(streams):
                end.mux.open()
        settle(*self.ends.values())
        if streams:
            self.accept()

    @rule(side=_SIDES)
    def open(self, side: str) -> None:
        end = self.ends[side]
        try:
            stream = end.mux.open()
        except StreamLimit:
            _FIRED["open refused"] += 1
            return
        assert side not in self.left, "opened after its own go-away"
        assert stream % 2 == (side == "client")
        _FIRED["open"] += 1

    @precondition(lambda self: any(end.unaccepted for end in self.ends.values()))
    @rule()
    def accept(self) -> None:
        for end in self.ends.values():
            if end.unaccepted:
                end.mux.accept(end.unaccepted.pop(0))
                _FIRED["accept"] += 1

    @precondition(some)
    @rule(side=_SIDES, number=_PICK, length=_AMOUNTS)
    def write(self, side: str, number: int, length: int) -> None:
        found = self.choose(side, number, lambda end, s: s not in end.finished and end.written[s] < 1_000_000)
        if found is not None:
            end, stream = found
            end.write(stream, length)
            _FIRED["write"] += 1

    @precondition(lambda self: any(end.unconsumed() for end in self.ends.values()))
    @rule(side=_SIDES, number=_PICK, share=st.floats(0.01, 1))
    def consume(self, side: str, number: int, share: float) -> None:
        found = self.choose(side, number, lambda end, s: end.received[s] > end.consumed[s])
        if found is not None:
            end, stream = found
            length = max(1, int((end.received[stream] - end.consumed[stream]) * share))
            end.consumed[stream] += length
            end.mux.consumed(stream, length, self.now)
            _FIRED["consume"] += 1

    @precondition(some)
    @rule(side=_SIDES, number=_PICK)
    def half_close(self, side: str, number: int) -> None:
        found = self.choose(side, number, lambda end, s: s not in end.finished)
        if found is not None and number % 2 == 0:
            end, stream = found
            end.finished.add(stream)
            end.mux.finish(stream)
            _FIRED["half_close"] += 1

    @precondition(some)
    @rule(side=_SIDES, number=_PICK)
    def reset(self, side: str, number: int) -> None:
        found = self.choose(side, number, lambda _end, _stream: True)
        if found is not None and number % 4 == 0:
            end, stream = found
            end.reset_here.add(stream)
            end.mux.reset(stream)
            _FIRED["reset"] += 1

    @rule(side=_SIDES)
    def ping(self, side: str) -> None:
        self.ends[side].mux.ping(self.now)
        self.pinged[side] += 1
        _FIRED["ping"] += 1

    @rule(side=_SIDES, number=_PICK)
    def go_away(self, side: str, number: int) -> None:
        if number % 20 == 0:
            self.ends[side].mux.go_away()
            self.left.add(side)
            _FIRED["go_away"] += 1

    @rule(side=_SIDES, frames=st.integers(1, 40))
    def transmit(self, side: str, frames: int) -> None:
        end = self.ends[side]
        if end.transmit(frames) or end.other.transmit(frames):
            _FIRED["transmit"] += 1

    @precondition(lambda self: any(end.wire for end in self.ends.values()))
    @rule(side=_SIDES, length=_PIECES)
    def deliver(self, side: str, length: int) -> None:
        end = self.ends[side]
        self.now += _STEP_S
        (end if end.other.wire else end.other).deliver(length, self.now)
        _FIRED["deliver"] += 1

    @precondition(some)
    @rule(side=_SIDES, frames=st.integers(1, 40), length=_PIECES)
    def pass_on(self, side: str, frames: int, length: int) -> None:
        """Transmit and deliver at once, so that runs of fifty steps get far."""
        end = self.ends[side]
        end.transmit(frames)
        self.now += _STEP_S
        end.other.deliver(length, self.now)
        _FIRED["pass_on"] += 1

    @precondition(some)
    @rule(side=_SIDES, number=_PICK)
    def pour(self, side: str, number: int) -> None:
        """A reader keeps up for some round trips, which is what makes a window grow."""
        found = self.choose(
            side,
            number,
            lambda end, s: (
                s not in end.finished
                and end.written[s] < 1_000_000
                and end.other.mux.alive(s)
                and s not in end.other.unaccepted
            ),
        )
        if found is None or number % 2:
            return
        end, stream = found
        other = end.other
        end.write(stream, 12 * INITIAL_WINDOW)
        for _ in range(12):
            end.transmit()
            self.now += _STEP_S
            other.deliver(len(end.wire), self.now)
            length = other.received[stream] - other.consumed[stream]
            other.consumed[stream] += length
            other.mux.consumed(stream, length, self.now)
            other.transmit()
            end.deliver(len(other.wire), self.now)
        _FIRED["pour"] += 1

    # ---- what must hold

    @invariant()
    def bytes_are_in_order_and_within_credit(self) -> None:
        for end in self.ends.values():
            for stream, framed in end.framed.items():
                other = end.other
                assert other.received[stream] <= framed <= end.written[stream]
                state = other.mux._streams.get(stream)
                if state is not None:
                    unread = framed - other.consumed[stream]
                    assert unread <= state.window, "sent past what was consumed"
                    if not state.fin_received:
                        assert end.mux.send_credit(stream) <= state.window - unread

    @invariant()
    def what_windows_grew_by_is_drawn_from_the_pool_and_never_more_than_it_holds(self) -> None:
        for end in self.ends.values():
            windows = [state.window for state in end.mux._streams.values()]
            grown = sum(windows) - len(windows) * INITIAL_WINDOW
            assert grown + end.mux._windows.free == _LIMITS.growth_pool
            assert 0 <= grown <= _LIMITS.growth_pool, "the pool is overdrawn"
            assert max(windows, default=0) <= _LIMITS.largest_window
            _FIRED["grown"] += grown > 0

    @invariant()
    def an_end_of_file_comes_after_all_the_data(self) -> None:
        for end in self.ends.values():
            for stream in end.peer_finished - end.reset_here - end.peer_reset:
                assert stream in end.other.finished
                assert end.received[stream] == end.other.written[stream]

    @invariant()
    def only_what_was_reset_is_reset(self) -> None:
        for end in self.ends.values():
            assert end.peer_reset <= end.other.reset_here | set(end.other.refused)

    def teardown(self) -> None:
        """Whatever happened: once both shells read everything, every byte and every end arrives."""
        ends = list(self.ends.values())
        busy = True
        while busy:
            busy = False
            for end in ends:
                while end.unaccepted:
                    end.mux.accept(end.unaccepted.pop())
                busy |= bool(end.transmit()) or bool(end.other.wire)
                self.now += _STEP_S
                end.deliver(len(end.other.wire), self.now)
                for stream, received in list(end.received.items()):
                    if received > end.consumed[stream]:
                        end.mux.consumed(stream, received - end.consumed[stream], self.now)
                        end.consumed[stream] = received
                        busy = True  # the credit for it has yet to travel
        self.bytes_are_in_order_and_within_credit()
        self.what_windows_grew_by_is_drawn_from_the_pool_and_never_more_than_it_holds()
        self.an_end_of_file_comes_after_all_the_data()
        for end in ends:
            assert min(1, self.pinged[end.name]) <= end.pongs <= end.asked, "a ping got no answer"
            for stream in {*end.written, *end.finished}:
                # a reset of a stream that the other end has already finished is told to nobody
                cut = end.reset_here | end.peer_reset | end.other.reset_here
                if stream in cut:
                    assert not end.mux.alive(stream)
                    continue
                assert end.other.received[stream] == end.written[stream], "bytes were lost"
                if stream in end.finished:
                    assert stream in end.other.peer_finished, "an end of file was lost"
                    assert end.mux.alive(stream) == (stream not in end.other.finished)


_RULES = frozenset(
    {"grown", "pour", "open", "open refused", "accept", "write", "consume", "half_close", "reset", "ping"}
) | {
    "go_away",
    "transmit",
    "deliver",
    "pass_on",
}


@pytest.mark.holds("T-11", "T-16")
def test_two_ends_keep_every_streams_bytes_order_and_credit_under_any_interleaving(
    request: pytest.FixtureRequest,
) -> None:
    number = options_of(request.config).seed
    print(f"hypothesis seed {number}; again with --bs-seed {number}")  # noqa: T201  # shown with a failure
    _FIRED.clear()
    run_state_machine_as_test(
        seed(number)(TwoEnds),
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            phases=[
                Phase.generate
            ],  # a failing run says so at once; its seed and blob reproduce it for shrinking
            database=None,
            derandomize=False,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"fired: {dict(_FIRED)}")  # noqa: T201  # the evidence that the rules were not idle
    assert _FIRED["examples"] >= EXAMPLES, f"only {_FIRED['examples']} examples ran"
    assert {name for name in _RULES if not _FIRED[name]} == set(), f"rules that never fired: {_FIRED}"
