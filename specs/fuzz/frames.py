"""The yamux core under arbitrary headers, payload and commands: only breaches by name, and the same ones however it is cut."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st
from specs.fuzz.cuts import pieces, ways

from inference_fleet.tunnel.errors import StreamLimit
from inference_fleet.tunnel.yamux import Limits, Mux, ProtocolError
from inference_fleet.tunnel.yamux.events import Event, Opened
from inference_fleet.tunnel.yamux.wire import GO_AWAY, GO_AWAY_PROTOCOL, INITIAL_WINDOW, LARGEST_U32, pack

_MOST_OUTGOING: Final = 20_000
_LARGEST_WINDOW: Final = 64 * INITIAL_WINDOW
_TIGHT: Final = Limits(
    open_streams=4,
    half_open_streams=2,
    resets_per_second=3,
    pings_per_second=3,
    empty_frames_per_second=3,
    frame_bytes=700,
    control_frames=6,
    remembered_ids=2,
)
_NUMBERS: Final = st.one_of(
    st.integers(0, 12),
    st.sampled_from([255, 256, INITIAL_WINDOW - 1, INITIAL_WINDOW, INITIAL_WINDOW + 1, LARGEST_U32 - 1]),
    st.integers(0, LARGEST_U32),
)
_FRAME: Final = st.tuples(
    st.just("frame"),
    st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4]),
    st.sampled_from([0, 0, 0, 1, 1, 2, 4, 8, 3, 5, 6, 12, 16]),
    st.one_of(st.integers(0, 9), _NUMBERS),
    _NUMBERS,
    st.integers(0, 300),
)
FRAMES: Final = st.lists(st.one_of(_FRAME, st.tuples(st.just("bytes"), st.binary(max_size=40))), max_size=12)
"""What a peer may say, in the words of `raw_of`."""
_DO: Final = st.tuples(
    st.just("do"),
    st.sampled_from(
        ["open", "accept", "offer", "finish", "reset", "consumed", "ping", "go_away", "drain", "later"]
    ),
    st.integers(0, 7),
    st.integers(1, 2 * INITIAL_WINDOW),
)
STRATEGY: Final = st.fixed_dictionaries(
    {
        "client": st.booleans(),
        "accepting": st.booleans(),
        "tight": st.booleans(),
        "steps": st.lists(
            st.one_of(_FRAME, _FRAME, _DO, st.tuples(st.just("bytes"), st.binary(max_size=60))), max_size=30
        ),
        "cuts": st.lists(st.integers(0, 4000), max_size=8),
    }
)


def play(case: dict[str, Any]) -> None:
    """Raises on anything that is not a documented ending, and where two cuts of the same bytes differ."""
    longest = max((len(raw_of(step)) for step in case["steps"] if step[0] != "do"), default=0)
    logs = [_Session(case).run(cuts) for cuts in ways(case["cuts"], longest)]
    for other in logs[1:]:
        assert other == logs[0], f"the same bytes, cut otherwise, gave\n{other}\nand not\n{logs[0]}"


def raw_of(step: tuple[Any, ...]) -> bytes:
    """The bytes of one thing said."""
    if step[0] == "bytes":
        return bytes(step[1])
    _, kind, flags, stream, length, payload = step
    return pack(kind, flags, stream, length) + (bytes(min(length, payload)) if kind == 0 else b"")


class _Session:
    """One end with the least shell, which keeps the contracts a shell has to keep."""

    def __init__(self, case: dict[str, Any]) -> None:
        self.case = case
        self.limits = _TIGHT if case["tight"] else Limits()
        self.mux = Mux(client=case["client"], limits=self.limits, accepting=case["accepting"])
        self.log: list[Any] = []
        self.now = 0.0
        self.streams: list[int] = []
        self.finished: set[int] = set()
        self.unused: dict[int, int] = {}

    def run(self, cuts: Any) -> list[Any]:
        try:
            for step in self.case["steps"]:
                if step[0] == "do":
                    self._do(step[1], step[2], step[3])
                else:
                    for piece in pieces(raw_of(step), cuts):
                        self._feed(piece)
            self._drain()
        except ProtocolError as error:
            self.log.append(("breach", error.breach.value, str(error)))
            last = self.mux.next_outgoing()
            assert last is not None, "a breach is told to the peer"
            assert last.header == pack(GO_AWAY, 0, 0, GO_AWAY_PROTOCOL), "told as a protocol error"
            assert self.mux.next_outgoing() is None, "and nothing else is told"
        return self.log

    def _do(self, what: str, which: int, amount: int) -> None:
        mux = self.mux
        stream = self.streams[which % len(self.streams)] if self.streams else None
        if what == "open":
            try:
                self._known(mux.open())
            except StreamLimit as full:
                self.log.append(("full", str(full)))
        elif what == "ping":
            mux.ping(self.now)
        elif what == "go_away":
            mux.go_away()
        elif what == "drain":
            self._drain()
        elif what == "later":
            self.now += 1
        elif stream is not None:
            self._do_to(stream, what, amount)

    def _do_to(self, stream: int, what: str, amount: int) -> None:
        mux = self.mux
        if what == "offer" and stream not in self.finished:
            mux.offer(stream, amount)
        elif what == "finish":
            self.finished.add(stream)
            mux.finish(stream)
        elif what == "consumed" and self.unused.get(stream):
            used = min(amount, self.unused[stream])
            self.unused[stream] -= used
            mux.consumed(stream, used, self.now)
        elif what == "accept":
            mux.accept(stream)
        elif what == "reset":
            mux.reset(stream)

    def _feed(self, data: bytes) -> None:
        mux, at = self.mux, 0
        while at < len(data):
            if due := mux.header_due:
                assert 0 < due <= 12
                piece = data[at : at + due]
                events = mux.receive_header(piece, self.now)
            else:
                piece = data[at : at + mux.payload_due]
                self._payload(mux.payload_stream, len(piece))
                events = mux.receive_payload(len(piece))
            at += len(piece)
            for event in events:
                self._told(event)
        assert mux.streams <= self.limits.open_streams, "more streams than the limit"

    def _payload(self, stream: int, arrived: int) -> None:
        length = arrived
        last = self.log[-1] if self.log else None
        if isinstance(last, tuple) and last[:2] == ("payload", stream):
            length += last[2]
            self.log.pop()
        self.log.append(("payload", stream, length))
        if stream:
            self.unused[stream] = self.unused.get(stream, 0) + arrived
            assert self.unused[stream] <= _LARGEST_WINDOW, "the peer was let past every window"

    def _told(self, event: Event) -> None:
        self.log.append(event)
        if isinstance(event, Opened):
            self._known(event.stream)

    def _known(self, stream: int) -> None:
        assert stream not in self.streams, "one id was opened twice"
        self.streams.append(stream)
        self.log.append(("known", stream))

    def _drain(self) -> None:
        for _ in range(_MOST_OUTGOING):
            if (outgoing := self.mux.next_outgoing()) is None:
                return
            self.log.append(outgoing)
            assert outgoing.length <= self.limits.frame_bytes, "a frame past the cap"
        raise AssertionError(f"after {_MOST_OUTGOING} frames there is still more to send")
