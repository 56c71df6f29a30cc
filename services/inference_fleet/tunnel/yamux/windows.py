"""How large the window of a receiving stream is: it grows while round trips, and not speed, limit it, from one pool.

On a local link they never do. What costs there is each wake of the other end, so the window is made four times as large once,
which quarters how often a sender has to wait for credit, and no larger: what is small waits behind what is under way.

| at half a window consumed                                  | the window                                               |
|------------------------------------------------------------|----------------------------------------------------------|
| measured for less than a round trip                        | stays; bursts say nothing                                |
| bandwidth x round trip is half of it or more               | doubles, once a newer ping confirmed the round trip      |
| bandwidth x round trip is less than an eighth of it        | is halved, down to the first window                      |
| the link is a local one                                    | becomes `LOCAL_WINDOW` at once, and stays                |
| the cap is reached                                         | stays                                                    |
| it would have drawn more than it leaves in the pool        | grows as far as that                                     |

A window comes back only as its reader reads, so no stream may hold more of the pool than it leaves to all others: one takes
half of it, each further one that stops reading half of the rest, and whoever comes next finds something to grow by.
Twice the product is what a sender needs that hears of credit by halves of a window, so growth ends there. A window is never
taken back on the wire: a smaller one gives less credit for what is consumed next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inference_fleet.tunnel.yamux.wire import INITIAL_WINDOW

if TYPE_CHECKING:
    from inference_fleet.tunnel.yamux.limits import Limits
    from inference_fleet.tunnel.yamux.state import StreamState
    from inference_fleet.tunnel.yamux.trips import Trips

LOCAL_WINDOW: Final = 4 * INITIAL_WINDOW
_MUCH: Final = 2
_LITTLE: Final = 8


class Windows:
    """The receiving windows of one session. What a stream holds past its first window is drawn from the pool."""

    def __init__(self, limits: Limits, trips: Trips, *, local_s: float) -> None:
        """A link whose round trip is below `local_s` is a local one."""
        self._largest = limits.largest_window
        self._trips = trips
        self._local_s = local_s
        self.free = limits.growth_pool
        self.curious = False
        """Whether the last decision would have been a better one with a newer round trip."""

    def consumed(self, state: StreamState, length: int, now: float) -> bool:
        """The reader has used `length` bytes; whether its peer is to be told of credit now."""
        state.owed += length
        state.taken += length
        if state.owed < state.window >> 1:
            return False
        if state.fin_received:
            self.settle(state)
            return False
        self._decide(state, now)
        return state.owed >= state.window >> 1

    def settle(self, state: StreamState) -> None:
        """The peer sends no more on this stream: what it drew goes back as far as nothing unread lies in it."""
        state.owed += state.recv_credit
        state.recv_credit = 0
        self._shrink(state, state.owed)

    def returned(self, state: StreamState) -> None:
        """The stream is gone, and everything it drew is back."""
        self.free += state.window - INITIAL_WINDOW
        state.window = INITIAL_WINDOW

    def _decide(self, state: StreamState, now: float) -> None:
        trip_s = self._trips.shortest_s
        self.curious = False
        if trip_s is None:
            return
        if trip_s < self._local_s:
            self._draw(state, self._step(state, min(LOCAL_WINDOW, self._largest) - state.window))
            return
        if state.measured_from is None:
            self._measure_anew(state, now)
            state.confirmed = self._trips.answers
            self.curious = True
            return
        took_s = now - state.measured_from
        if took_s <= 0 or took_s < trip_s:
            return
        product = (state.taken - state.taken_before) / took_s * trip_s
        self._measure_anew(state, now)
        if product * _LITTLE < state.window:
            self._shrink(state, state.window >> 1)
        elif product * _MUCH >= state.window:
            self._grow(state)

    @staticmethod
    def _measure_anew(state: StreamState, now: float) -> None:
        state.measured_from, state.taken_before = now, state.taken

    def _grow(self, state: StreamState) -> None:
        step = self._step(state, min(state.window, self._largest - state.window))
        if not step:
            return
        self.curious = True
        if state.confirmed == self._trips.answers:
            return
        state.confirmed = self._trips.answers
        self._draw(state, step)

    def _step(self, state: StreamState, wanted: int) -> int:
        """As much of that as the pool lets one stream have; what is less than a first window is not worth a step."""
        room = (self.free - (state.window - INITIAL_WINDOW)) // 2
        step = min(wanted, room)
        return step if step >= INITIAL_WINDOW else 0

    def _draw(self, state: StreamState, step: int) -> None:
        state.window += step
        state.owed += step
        self.free -= step

    def _shrink(self, state: StreamState, most: int) -> None:
        step = min(state.window - INITIAL_WINDOW, most, state.owed)
        state.window -= step
        state.owed -= step
        self.free += step
