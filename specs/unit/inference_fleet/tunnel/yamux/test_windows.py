from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from inference_fleet.tunnel.yamux import Limits, Mux
from inference_fleet.tunnel.yamux.state import StreamState
from inference_fleet.tunnel.yamux.trips import Trips
from inference_fleet.tunnel.yamux.windows import LOCAL_WINDOW, Windows
from inference_fleet.tunnel.yamux.wire import (
    ACK,
    DATA,
    FIN,
    INITIAL_WINDOW,
    PING,
    RST,
    SYN,
    WINDOW,
    Header,
    pack,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HALF = INITIAL_WINDOW // 2
TRIP_S = 0.05
LOCAL_S = TRIP_S / 10


class Reader:
    """A stream's receiving half on a link: every answered ping says what the link takes, and the reader is the sender's limit."""

    def __init__(
        self, limits: Limits | None = None, *, trip_s: float = TRIP_S, windows: Windows | None = None
    ) -> None:
        self.trips = Trips()
        self.trip_s = trip_s
        self.now = 0.0
        self.asked = 0
        self.windows = windows or Windows(limits or Limits(), self.trips, local_s=LOCAL_S)
        self.trips = self.windows._trips
        self.state = StreamState(ours=False)
        self.measure()

    def measure(self, trip_s: float | None = None, *, quiet: bool = True) -> None:
        value = self.trips.ask(self.now, quiet=quiet)
        self.trips.answered(value, self.now + (self.trip_s if trip_s is None else trip_s))

    def window_a_trip(self, share: float = 1.0, *, confirmed: bool = True) -> int:
        """A round trip in which `share` of a window came and was used; the window after it."""
        self.now += self.trip_s
        left = int(self.state.window * share)
        while left > 0:
            piece = min(left, HALF)
            left -= piece
            self.consume(piece)
        if confirmed:
            self.measure(quiet=False)
        return self.state.window

    def consume(self, length: int) -> None:
        """As the core does: credit that is due is told at once."""
        state = self.state
        state.recv_credit -= length
        if self.windows.consumed(state, length, self.now):
            self.asked += self.windows.curious
            state.recv_credit += state.owed
            state.owed = 0


@pytest.mark.holds("B-36")
def test_a_window_doubles_while_each_round_trip_uses_it_up_and_stops_at_its_cap() -> None:
    reader = Reader()
    windows = [reader.window_a_trip() // INITIAL_WINDOW for _ in range(12)]
    assert windows[0] == 1, "one round trip is no measure yet"
    assert sorted(set(windows)) == [1, 2, 4, 8, 16, 32], "it grows by doubling"
    assert windows[-1] * INITIAL_WINDOW == Limits().largest_window


def test_growth_ends_at_twice_what_the_link_holds() -> None:
    reader = Reader()
    link_holds = 5 * INITIAL_WINDOW
    for _ in range(20):
        reader.window_a_trip(min(1.0, link_holds / reader.state.window))
    assert 2 * link_holds < reader.state.window <= 4 * link_holds


def test_the_windows_of_a_local_link_grow_once_to_a_bound_of_their_own_however_fast_it_is() -> None:
    """The control is the same stream on a link that is no local one."""
    near, far = Reader(trip_s=LOCAL_S * 0.9), Reader(trip_s=LOCAL_S * 1.1)
    near.consume(HALF - 1)
    assert near.state.window == INITIAL_WINDOW, "grown for a stream that has used no half of its first window"
    near.consume(1)
    assert near.state.window == LOCAL_WINDOW, "a local link's window is still the first one"
    for _ in range(24):
        near.window_a_trip()
        far.window_a_trip()
    assert near.state.window == LOCAL_WINDOW, "a local link's window went on growing"
    assert far.state.window > LOCAL_WINDOW
    assert (near.asked, far.asked > 0) == (0, True), "a local link is not even asked"


def test_the_windows_of_a_local_link_leave_the_pool_as_much_as_they_draw() -> None:
    windows = Windows(Limits(growth_pool=10 * INITIAL_WINDOW), Trips(), local_s=LOCAL_S)
    readers = [Reader(trip_s=LOCAL_S / 2, windows=windows) for _ in range(4)]
    for reader in readers:
        reader.consume(HALF)
    sizes = [reader.state.window // INITIAL_WINDOW for reader in readers]
    assert sizes == [4, 4, 3, 2], f"one pool of ten was drawn on as {sizes}"
    assert windows.free == INITIAL_WINDOW


def test_a_window_grows_only_after_a_ping_that_is_newer_than_its_last_growth() -> None:
    reader = Reader()
    for _ in range(10):
        reader.window_a_trip(confirmed=False)
    assert reader.state.window == INITIAL_WINDOW, "grown on an old measure"
    assert reader.asked > 1, "and nobody asks for a new one"
    reader.measure(quiet=False)
    for _ in range(10):
        reader.window_a_trip(confirmed=False)
    assert reader.state.window == 2 * INITIAL_WINDOW


def test_an_answer_that_stood_behind_data_may_shorten_the_round_trip_and_never_lengthen_it() -> None:
    reader = Reader()
    reader.measure(20 * TRIP_S, quiet=False)
    assert reader.trips.shortest_s == pytest.approx(TRIP_S), "a queue was taken for distance"
    reader.measure(TRIP_S / 2, quiet=False)
    assert reader.trips.shortest_s == pytest.approx(TRIP_S / 2)
    reader.measure(3 * TRIP_S, quiet=True)
    assert reader.trips.shortest_s == pytest.approx(3 * TRIP_S), "the control: a silent link has no queue"


def test_a_burst_is_no_bandwidth() -> None:
    """What comes within less than a round trip measures how it was cut, not how fast the link is."""
    reader = Reader()
    for _ in range(40):
        reader.now += TRIP_S / 1000
        reader.consume(HALF)
        reader.measure(quiet=False)
    assert reader.state.window == INITIAL_WINDOW


def test_all_streams_draw_on_one_pool_and_keep_what_they_have_when_it_is_empty() -> None:
    limits = Limits(growth_pool=9 * INITIAL_WINDOW)
    first = Reader(limits)
    second = Reader(limits, windows=first.windows)
    for _ in range(12):
        first.window_a_trip()
        second.window_a_trip()
    drawn = [reader.state.window - INITIAL_WINDOW for reader in (first, second)]
    assert first.windows.free >= 0, "the pool is overdrawn"
    assert sum(drawn) + first.windows.free == 9 * INITIAL_WINDOW
    assert first.windows.free - min(drawn) < 2 * INITIAL_WINDOW, "there was more to have"
    assert min(drawn) >= INITIAL_WINDOW, "one stream took it all"
    first.windows.returned(first.state)
    for _ in range(12):
        second.window_a_trip()
    assert second.state.window >= 5 * INITIAL_WINDOW, "what an ended stream drew did not come back"


@pytest.mark.holds("T-14")
def test_readers_that_grew_and_stopped_leave_something_of_the_pool_to_the_next_ones() -> None:
    """The first, alone, has the largest window there is; nobody reads it from then on, nor the second."""
    first = Reader()
    readers = [first, *(Reader(windows=first.windows) for _ in range(3))]
    for reader in readers:
        for _ in range(12):
            reader.window_a_trip()
        drawn = reader.state.window - INITIAL_WINDOW
        assert drawn <= first.windows.free, "one stream holds more of the pool than all others may have"
    windows = [reader.state.window // INITIAL_WINDOW for reader in readers]
    assert windows[0] * INITIAL_WINDOW == Limits().largest_window
    assert windows[2] >= 8, "two readers that stopped leave nothing to grow by"
    assert windows[3] >= 4


def test_a_window_that_is_used_little_gives_back_and_takes_nothing_back_on_the_wire() -> None:
    reader = Reader()
    for _ in range(8):
        reader.window_a_trip()
    grown, free = reader.state.window, reader.windows.free
    assert grown > 4 * INITIAL_WINDOW
    granted = []
    for _ in range(400):
        reader.now += 10 * TRIP_S
        before = reader.state.recv_credit
        reader.consume(HALF)
        granted.append(reader.state.recv_credit - before + HALF)
    assert reader.state.window == INITIAL_WINDOW
    assert reader.windows.free == free + grown - INITIAL_WINDOW
    assert min(granted) == 0, "it gave less credit"
    assert all(credit >= 0 for credit in granted), "it took credit back"


# ---- in the core


def _headers(mux: Mux) -> list[Header]:
    found = []
    while (outgoing := mux.next_outgoing()) is not None:
        found.append(unpack(outgoing.header))
    return found


def _measured(mux: Mux, now: float, trip_s: float) -> None:
    """Whatever ping goes out is answered after a round trip."""
    for kind, _, _, value in _headers(mux):
        if kind == PING:
            mux.receive_header(pack(PING, ACK, 0, value), now + trip_s)


class Serving:
    """A core that receives one stream from a peer that uses up all it is given."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.mux = Mux(client=False, limits=limits, local_s=LOCAL_S)
        self.now = 0.0
        self.granted = INITIAL_WINDOW
        self.mux.ping(self.now)
        _measured(self.mux, self.now, TRIP_S)
        self.open(1)

    def open(self, stream: int) -> None:
        self.mux.receive_header(pack(WINDOW, SYN, stream, 0), self.now)
        self.mux.accept(stream)
        _headers(self.mux)

    def receive(self, length: int, stream: int = 1) -> None:
        self.granted -= length
        self.mux.receive_header(pack(DATA, 0, stream, length), self.now)
        self.mux.receive_payload(length)

    def trip(self, stream: int = 1) -> int:
        """One round trip: everything granted comes and is consumed; how much credit was told for it."""
        self.now += TRIP_S
        told = 0
        length = self.granted
        self.receive(length, stream)
        while length > 0:
            piece = min(HALF, length)
            self.mux.consumed(stream, piece, self.now)
            length -= piece
            for kind, flags, _, value in _headers(self.mux):
                if kind == PING and flags == SYN:
                    self.mux.receive_header(pack(PING, ACK, 0, value), self.now + TRIP_S)
                elif kind == WINDOW:
                    told += value
        self.granted += told
        return told


def test_growth_is_told_as_credit_on_top_of_what_was_consumed() -> None:
    serving = Serving()
    told = [serving.trip() for _ in range(8)]
    assert max(told) >= 4 * INITIAL_WINDOW
    state = serving.mux._streams[1]
    assert serving.granted + state.owed == state.window, "told, and drawn, are not the same"


def _finished(serving: Serving) -> None:
    serving.mux.receive_header(pack(DATA, FIN, 1, 0), serving.now)


def _reset_here(serving: Serving) -> None:
    serving.mux.reset(1)


def _reset_there(serving: Serving) -> None:
    serving.mux.receive_header(pack(WINDOW, RST, 1, 0), serving.now)


@pytest.mark.parametrize("end", [_finished, _reset_here, _reset_there])
def test_what_a_stream_drew_goes_back_when_it_ends(end: Callable[[Serving], None]) -> None:
    serving = Serving()
    for _ in range(8):
        serving.trip()
    assert serving.mux._windows.free < Limits().growth_pool, "the control: it had drawn something"
    end(serving)
    assert serving.mux._windows.free == Limits().growth_pool, "the pool is short of what an ended stream drew"


def test_what_lies_unread_at_an_end_of_file_goes_back_only_as_it_is_read() -> None:
    serving = Serving()
    for _ in range(8):
        serving.trip()
    unread = serving.granted
    serving.receive(unread)
    _finished(serving)
    pool = Limits().growth_pool
    assert pool - serving.mux._windows.free == unread - INITIAL_WINDOW, "returned while it lies in memory"
    serving.mux.consumed(1, unread, serving.now)
    assert serving.mux._windows.free == pool


def test_pings_of_its_own_are_asked_one_at_a_time() -> None:
    serving = Serving()
    asked = 0
    for _ in range(20):
        serving.now += TRIP_S
        serving.receive(HALF)
        serving.mux.consumed(1, HALF, serving.now)
        headers = _headers(serving.mux)
        serving.granted += sum(value for kind, _, _, value in headers if kind == WINDOW)
        asked += sum(kind == PING for kind, *_ in headers)
    assert asked == 1, "a peer that answers no ping is asked again and again"
