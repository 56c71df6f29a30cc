"""When which byte of a slow direction may leave: a schedule over times that are given in, told lengths and never a byte.

A `Line` is one direction of a link. Its rate is shared by its connections, first come first served; each has a `Lane`,
in which nothing overtakes. A byte is *carried* when the rate lets it onto the line and *due* one delay later:

| promise                                | how it is kept                                                               |
|----------------------------------------|------------------------------------------------------------------------------|
| no byte is ever early                  | whole nanoseconds, rounded up                                                |
| the rate is exact over any long window | what leaves late does not push back what comes after it                      |
| a burst is bounded                     | only a shell that looks late releases more at once: its lateness times rate  |
| delay costs no throughput              | rate times delay may be under way besides a queue (`Shape.in_flight_bytes`)   |
| a change holds for all that is not due | the new delay for what is under way, the new rate for what is not carried yet |
"""

from __future__ import annotations

from collections import deque

from blackstart.core.shape import CLEAR, Shape

NS = 1_000_000_000
TICK_NS = 1_000_000  # looks closer together than this would cost more than they are worth
MOST_PIECES = 65536


class _Piece:
    """Bytes that go onto the line one behind the other; `rate` 0 is all at once."""

    __slots__ = ("begin_ns", "left", "length", "rate")

    def __init__(self, begin_ns: int, length: int, rate: int) -> None:
        self.begin_ns = begin_ns
        self.length = length
        self.rate = rate
        self.left = 0  # so many of them have left at the far end

    def carried_ns(self, count: int) -> int:
        """When the first `count` bytes are on the line."""
        return self.begin_ns + (-(-count * NS // self.rate) if self.rate else 0)

    def carried(self, at_ns: int) -> int:
        """How many bytes are on the line by then."""
        if at_ns < self.begin_ns:
            return 0
        return min(self.length, (at_ns - self.begin_ns) * self.rate // NS) if self.rate else self.length


class Lane:
    """The bytes of one connection on a line."""

    def __init__(self, line: Line) -> None:
        """Made by `Line.lane`."""
        self.held = 0
        self._line = line
        self._pieces: deque[_Piece] = deque()

    def admit(self, length: int, now_ns: int) -> None:
        """So many bytes came in. They are taken even when the lane is full: whoever sends looks at `full` first."""
        rate = self._line.shape.bytes_per_s or 0
        begin_ns = self._line.begin(now_ns)
        last = self._pieces[-1] if self._pieces else None
        if last is not None and last.rate == rate and last.carried_ns(last.length) == begin_ns:
            last.length += length
        else:
            last = _Piece(begin_ns, length, rate)
            self._pieces.append(last)
        self.held += length
        self._line.busy_until(last.carried_ns(last.length))

    def due(self, now_ns: int) -> int:
        """How many bytes may leave now."""
        at_ns = now_ns - self._line.delay_ns
        total = 0
        for piece in self._pieces:
            carried = piece.carried(at_ns)
            total += max(0, carried - piece.left)
            if carried < piece.length:
                break
        return total

    def passed(self, length: int) -> None:
        """So many bytes have left at the far end."""
        self.held -= length
        while length:
            piece = self._pieces[0]
            step = min(length, piece.length - piece.left)
            piece.left += step
            length -= step
            if piece.left == piece.length:
                self._pieces.popleft()

    def full(self, now_ns: int) -> bool:
        """Whether the sender should wait: too much is under way, or too much of it waits for the rate."""
        if self.held > self._line.in_flight_bytes or len(self._pieces) >= MOST_PIECES:
            return True
        return self._waiting(now_ns) > self._line.queue_bytes

    def wake_ns(self, now_ns: int, *, blocked: bool = False) -> int | None:
        """When to look again; `None`: not before something is admitted. `blocked`: nothing could leave anyway."""
        looks = []
        if self._pieces and not blocked:
            piece = self._pieces[0]
            delay_ns = self._line.delay_ns
            whole_ns = piece.carried_ns(piece.length) + delay_ns
            looks.append(max(piece.carried_ns(piece.left + 1) + delay_ns, min(whole_ns, now_ns + TICK_NS)))
        if self._waiting(now_ns) > self._line.queue_bytes:
            looks.append(max(now_ns + TICK_NS, self._room_ns()))
        return min(looks, default=None)

    def close(self) -> None:
        """What is under way goes nowhere."""
        self._pieces.clear()
        self.held = 0
        self._line.forget(self)

    def take_waiting(self, now_ns: int) -> list[tuple[int, int]]:
        """Take back what is not carried yet: when each part would have begun, and its length."""
        parts = []
        while self._pieces:
            piece = self._pieces[-1]
            carried = piece.carried(now_ns)
            if carried == piece.length:
                break
            parts.append((max(piece.begin_ns, now_ns), piece.length - carried))
            self.held -= piece.length - carried
            piece.length = carried
            if piece.left < carried:
                break
            self._pieces.pop()
        return parts[::-1]

    def _waiting(self, now_ns: int) -> int:
        waiting = 0
        for piece in reversed(self._pieces):
            missing = piece.length - piece.carried(now_ns)
            if not missing:
                break
            waiting += missing
        return waiting

    def _room_ns(self) -> int:
        """When no more than the queue waits, if nothing else comes."""
        behind = 0
        for piece in reversed(self._pieces):
            if behind + piece.length > self._line.queue_bytes:
                return piece.carried_ns(piece.length - (self._line.queue_bytes - behind))
            behind += piece.length
        return 0


class Line:
    """One direction of a link: what all its connections have in common."""

    def __init__(self, shape: Shape = CLEAR) -> None:
        self._keep(shape)
        self.passed = 0  # bytes handed on, as their shell counts them: it also lets others than bytes travel
        self._free_ns = 0
        self._lanes: set[Lane] = set()

    @property
    def held(self) -> int:
        """Bytes under way in all lanes."""
        return sum(lane.held for lane in self._lanes)

    def lane(self) -> Lane:
        """For another connection."""
        lane = Lane(self)
        self._lanes.add(lane)
        return lane

    def forget(self, lane: Lane) -> None:
        """That connection is over."""
        self._lanes.discard(lane)

    def begin(self, now_ns: int) -> int:
        """When a byte that came in now may begin to go onto the line."""
        return max(now_ns, self._free_ns)

    def busy_until(self, at_ns: int) -> None:
        """The line is taken until then."""
        self._free_ns = max(self._free_ns, at_ns)

    def reshape(self, shape: Shape, now_ns: int) -> None:
        """Another delay and rate from now on; what waits for the rate is planned anew, in the order it came."""
        waiting = [
            (begin_ns, number, lane, length)
            for lane in self._lanes
            for number, (begin_ns, length) in enumerate(lane.take_waiting(now_ns))
        ]
        self._keep(shape)
        self._free_ns = now_ns
        for _, _, lane, length in sorted(waiting, key=lambda part: part[:2]):
            lane.admit(length, now_ns)

    def _keep(self, shape: Shape) -> None:
        """What is asked for with every byte, worked out once."""
        self.shape = shape
        self.delay_ns = round(shape.delay_s * NS)
        self.queue_bytes = shape.queue_bytes
        self.in_flight_bytes = shape.in_flight_bytes
