from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from inference_fleet.tunnel.errors import StreamLimit
from inference_fleet.tunnel.yamux import Breach, Limits, Mux, ProtocolError
from inference_fleet.tunnel.yamux.events import GoneAway, Opened, PingAnswered, Refused
from inference_fleet.tunnel.yamux.wire import (
    ACK,
    DATA,
    FIN,
    GO_AWAY,
    INITIAL_WINDOW,
    LARGEST_U32,
    PING,
    RST,
    SYN,
    WINDOW,
    Header,
    pack,
    unpack,
)

from .ends import End, pair, pattern, settle

if TYPE_CHECKING:
    from collections.abc import Callable


def _headers(end: End) -> list[Header]:
    """The headers waiting on an end's wire, payload skipped."""
    end.transmit()
    found, at, wire = [], 0, bytes(end.wire)
    while at < len(wire):
        header = unpack(wire[at : at + 12])
        found.append(header)
        at += 12 + (header.length if header.type == DATA else 0)
    return found


def _breach(end: End, *frames: bytes, now: float = 0.0) -> Breach | None:
    try:
        end.feed(b"".join(frames), now)
    except ProtocolError as error:
        return error.breach
    return None


HALVES = Limits(frame_bytes=INITIAL_WINDOW // 2)


def _opened(limits: Limits | None = None) -> tuple[End, End, int]:
    """A stream opened by the client, known to and acknowledged by the server."""
    client, server = pair(limits)
    stream = client.mux.open()
    settle(client, server)
    server.mux.accept(stream)
    settle(client, server)
    return client, server, stream


# ---- the letter of the specification


def test_the_dialling_side_opens_odd_streams_and_the_accepting_side_even_ones() -> None:
    client, server = pair()
    assert [client.mux.open() for _ in range(3)] == [1, 3, 5]
    assert [server.mux.open() for _ in range(3)] == [2, 4, 6]


def test_an_open_is_a_window_update_with_syn_and_its_answer_one_with_ack() -> None:
    client, server = pair()
    stream = client.mux.open()
    assert _headers(client) == [Header(WINDOW, SYN, 1, 0)]
    server.deliver(12)
    server.mux.accept(stream)
    assert _headers(server) == [Header(WINDOW, ACK, 1, 0)]


def test_whatever_an_end_says_on_a_stream_of_its_peer_acknowledges_it_first() -> None:
    ways: tuple[Callable[[End], None], ...] = (lambda end: end.write(1, 5), lambda end: end.mux.finish(1))
    for say in ways:
        _, server = pair()
        server.feed(pack(WINDOW, SYN, 1, 0))
        assert _headers(server) == [], "acknowledged before anybody took it"
        say(server)
        said = _headers(server)
        assert said[0] == Header(WINDOW, ACK, 1, 0), "said before it was acknowledged"
        assert [header.type for header in said[1:]] == [DATA]
        server.mux.accept(1)
        assert _headers(server) == said, "acknowledged twice"


def test_an_end_of_file_that_comes_before_the_acknowledgement_went_does_not_take_it_away() -> None:
    _, server = pair()
    server.feed(pack(WINDOW, SYN, 1, 0))
    server.mux.accept(1)
    server.feed(pack(DATA, FIN, 1, 0))
    assert _headers(server) == [Header(WINDOW, ACK, 1, 0)]


def test_an_acknowledgement_costs_a_peer_that_does_not_read_nothing_once_its_stream_is_gone() -> None:
    _, server = pair()
    for stream in range(1, 201, 2):
        server.feed(pack(WINDOW, SYN, stream, 0))
        server.mux.accept(stream)
        server.feed(pack(WINDOW, RST, stream, 0))
    assert not server.mux._sending._credits, "what nobody waits for is kept"


def test_data_may_follow_the_syn_before_any_acknowledgement() -> None:
    client, server = pair()
    stream = client.mux.open()
    client.write(stream, 10)
    settle(client, server)
    assert server.received[stream] == 10


@pytest.mark.holds("T-11", "B-36")
def test_a_stream_sends_256_kib_and_then_waits_for_credit() -> None:
    client, server, stream = _opened()
    client.write(stream, INITIAL_WINDOW + 5)
    settle(client, server)
    assert server.received[stream] == INITIAL_WINDOW == 262144
    server.mux.consumed(stream, INITIAL_WINDOW)
    settle(client, server)
    assert server.received[stream] == INITIAL_WINDOW + 5


def test_credit_is_given_for_what_was_consumed_and_for_nothing_that_only_arrived() -> None:
    client, server, stream = _opened()
    client.write(stream, INITIAL_WINDOW - 1000)
    client.transmit()
    server.deliver(1 << 30)
    assert _headers(server) == [], "arrival alone gives no credit"
    server.mux.consumed(stream, INITIAL_WINDOW // 2 - 1)
    assert _headers(server) == [], "below half a window nothing is said"
    server.mux.consumed(stream, 1)
    assert _headers(server) == [Header(WINDOW, 0, stream, INITIAL_WINDOW // 2)], "a delta, not a total"


@pytest.mark.holds("T-15")
def test_streams_take_turns_of_one_capped_frame() -> None:
    client, server = pair(Limits(frame_bytes=1000))
    first, second = client.mux.open(), client.mux.open()
    client.write(first, 2500)
    client.write(second, 1500)
    data = [(h.stream, h.length) for h in _headers(client) if h.type == DATA]
    assert data == [(first, 1000), (second, 1000), (first, 1000), (second, 500), (first, 500)]
    assert server.received == {}


def test_control_jumps_the_queue_and_a_fin_never_passes_its_streams_data() -> None:
    client, server, stream = _opened(HALVES)
    cap = HALVES.frame_bytes
    client.write(stream, cap + cap // 2)
    client.mux.finish(stream)
    client.transmit(1)
    client.mux.ping(0.0)
    client.mux.open()
    client.mux.go_away()
    kinds = [(h.type, h.flags) for h in _headers(client)][1:]
    assert kinds[:3] == [(PING, SYN), (WINDOW, SYN), (GO_AWAY, 0)]
    assert kinds[3:] == [(DATA, 0), (DATA, FIN)]
    server.deliver(1 << 30)
    assert server.received[stream] == cap + cap // 2
    assert stream in server.peer_finished


def test_window_updates_jump_waiting_data() -> None:
    client, server, stream = _opened(HALVES)
    server.write(stream, 2 * HALVES.frame_bytes)
    client.write(stream, INITIAL_WINDOW)
    client.transmit()
    server.deliver(1 << 30)
    server.mux.consumed(stream, INITIAL_WINDOW)
    assert [h.type for h in _headers(server)] == [WINDOW, DATA, DATA]


def test_a_fin_without_data_is_an_empty_data_frame() -> None:
    client, _, stream = _opened()
    client.mux.finish(stream)
    assert _headers(client) == [Header(DATA, FIN, stream, 0)]


def test_a_fin_is_a_frame_of_its_own_right_behind_its_streams_last_data() -> None:
    """Both in one frame is legal, but an end that handles flags first takes the data for missing."""
    client, server, stream = _opened()
    other = client.mux.open()
    client.write(stream, 5)
    client.mux.finish(stream)
    client.write(other, 7)
    frames = [header for header in _headers(client) if header.type == DATA]
    assert frames == [Header(DATA, 0, stream, 5), Header(DATA, FIN, stream, 0), Header(DATA, 0, other, 7)]
    server.deliver(1 << 30)
    assert (server.received[stream], stream in server.peer_finished) == (5, True)


@pytest.mark.holds("T-16")
def test_a_half_closed_stream_still_receives_and_is_forgotten_once_both_halves_are_closed() -> None:
    client, server, stream = _opened()
    client.mux.finish(stream)
    settle(client, server)
    server.write(stream, 70_000)
    settle(client, server)
    assert client.received[stream] == 70_000
    assert (client.mux.streams, server.mux.streams) == (1, 1)
    server.mux.finish(stream)
    settle(client, server)
    assert (client.mux.streams, server.mux.streams) == (0, 0)


def test_a_reset_drops_what_waits_and_reaches_the_peer_first() -> None:
    client, server, stream = _opened()
    cap = Limits().frame_bytes
    client.write(stream, cap + cap // 2)
    client.mux.reset(stream)
    assert _headers(client) == [Header(WINDOW, RST, stream, 0)]
    server.deliver(12)
    assert stream in server.peer_reset
    assert (client.mux.streams, server.mux.streams) == (0, 0)


def test_a_ping_is_answered_with_its_value_and_times_the_round_trip() -> None:
    client, server = pair()
    client.mux.ping(now=10.0)
    (ping,) = _headers(client)
    server.deliver(12)
    assert _headers(server) == [Header(PING, ACK, 0, ping.length)]
    assert client.deliver(12, now=10.25) == [PingAnswered(0.25)]


def test_a_ping_answer_nobody_waits_for_is_ignored() -> None:
    client, _ = pair()
    assert client.feed(pack(PING, ACK, 0, 99)) == []


@pytest.mark.parametrize("piece", range(1, 13))
def test_headers_and_payload_may_be_cut_anywhere(piece: int) -> None:
    client, server, stream = _opened()
    client.write(stream, 100)
    client.mux.ping(0.0)
    client.mux.finish(stream)
    client.transmit()
    while client.wire:
        server.deliver(piece)
    assert (server.received[stream], stream in server.peer_finished) == (100, True)
    settle(client, server)
    assert client.pongs == 1


def test_the_core_is_told_lengths_and_never_sees_payload() -> None:
    server = Mux(client=False)
    server.receive_header(pack(WINDOW, SYN, 1, 0), 0.0)
    server.receive_header(pack(DATA, FIN, 1, 5), 0.0)
    assert (server.header_due, server.payload_due, server.payload_stream) == (0, 5, 1)
    assert server.receive_payload(2) == ()
    assert [type(event).__name__ for event in server.receive_payload(3)] == ["Finished"]
    assert server.header_due == 12


# ---- going away


@pytest.mark.holds("B-31")
def test_after_go_away_running_streams_finish_and_no_new_one_opens_either_way() -> None:
    client, server, stream = _opened()
    server.mux.go_away()
    settle(client, server)
    assert client.gone_away == [0]
    for end in (client, server):
        with pytest.raises(StreamLimit, match="going away"):
            end.mux.open()
    client.write(stream, 10)
    client.mux.finish(stream)
    settle(client, server)
    assert (server.received[stream], stream in server.peer_finished) == (10, True)


def test_a_stream_that_crosses_a_go_away_is_reset_not_a_breach() -> None:
    client, server = pair()
    server.mux.go_away()
    stream = client.mux.open()
    settle(client, server)
    assert server.refused == [stream]
    assert stream in client.peer_reset


@pytest.mark.parametrize("code", [0, 1, 2])
def test_each_go_away_code_is_told(code: int) -> None:
    client, _ = pair()
    assert client.feed(pack(GO_AWAY, 0, 0, code)) == [GoneAway(code)]


# ---- breaches: the session ends with go-away 1


def _second_use(end: End) -> Breach | None:
    return _breach(end, pack(WINDOW, SYN, 1, 0))


_BREACHES: list[tuple[str, Callable[[End], Breach | None], Breach]] = [
    ("bad version", lambda end: _breach(end, b"\x01" + bytes(11)), Breach.VERSION),
    ("even id", lambda end: _breach(end, pack(WINDOW, SYN, 4, 0)), Breach.ID_PARITY),
    ("second use of an id", _second_use, Breach.ID_REUSE),
    ("data unopened", lambda end: _breach(end, pack(DATA, 0, 9, 1)), Breach.UNKNOWN_STREAM),
    ("window unopened", lambda end: _breach(end, pack(WINDOW, 0, 9, 1)), Breach.UNKNOWN_STREAM),
    ("reset unopened", lambda end: _breach(end, pack(WINDOW, RST, 9, 0)), Breach.UNKNOWN_STREAM),
    ("fin unopened", lambda end: _breach(end, pack(DATA, FIN, 9, 0)), Breach.UNKNOWN_STREAM),
    ("ours, unopened", lambda end: _breach(end, pack(DATA, 0, 2, 1)), Breach.UNKNOWN_STREAM),
    ("ack of its own", lambda end: _breach(end, pack(WINDOW, ACK, 1, 0)), Breach.ACK_OF_OWN_STREAM),
    (
        "past the credit at once",
        lambda end: _breach(end, pack(DATA, 0, 1, INITIAL_WINDOW + 1)),
        Breach.WINDOW_EXCEEDED,
    ),
    (
        "past the credit in two",
        lambda end: _breach(
            end, pack(DATA, 0, 1, INITIAL_WINDOW), pattern(1, 0, INITIAL_WINDOW), pack(DATA, 0, 1, 1)
        ),
        Breach.WINDOW_EXCEEDED,
    ),
    (
        "window overflow",
        lambda end: _breach(end, pack(WINDOW, 0, 1, LARGEST_U32 - INITIAL_WINDOW + 1)),
        Breach.WINDOW_OVERFLOW,
    ),
    (
        "data after fin",
        lambda end: _breach(end, pack(DATA, FIN, 1, 0), pack(DATA, 0, 1, 1)),
        Breach.DATA_AFTER_FIN,
    ),
]


@pytest.mark.parametrize(
    ("break_it", "breach"), [(row[1], row[2]) for row in _BREACHES], ids=[row[0] for row in _BREACHES]
)
def test_every_breach_ends_the_session_by_name_with_go_away_1(
    break_it: Callable[[End], Breach | None], breach: Breach
) -> None:
    client, server, stream = _opened()
    server.write(stream, 100_000)
    server.mux.ping(0.0)
    assert break_it(server) is breach
    assert _headers(server) == [Header(GO_AWAY, 0, 0, 1)], "the go-away is all that is still said"
    assert client.gone_away == []


def test_the_largest_legal_window_is_no_overflow() -> None:
    _, server, stream = _opened()
    assert _breach(server, pack(WINDOW, 0, stream, LARGEST_U32 - INITIAL_WINDOW)) is None
    assert server.mux.send_credit(stream) == LARGEST_U32


def test_data_in_flight_to_a_stream_reset_here_goes_nowhere_but_only_within_its_credit() -> None:
    client, server, stream = _opened()
    client.write(stream, INITIAL_WINDOW)
    client.transmit()
    server.mux.reset(stream)
    server.deliver(1 << 30)
    assert server.received[stream] == 0
    assert _breach(server, pack(DATA, 0, stream, 1)) is Breach.WINDOW_EXCEEDED


def test_window_updates_resets_and_fins_for_a_finished_stream_are_ignored() -> None:
    client, server, stream = _opened()
    client.mux.finish(stream)
    server.mux.finish(stream)
    settle(client, server)
    late = (pack(WINDOW, 0, stream, 5), pack(DATA, FIN, stream, 0), pack(WINDOW, RST, stream, 0))
    assert _breach(server, *late) is None


# ---- limits


@pytest.mark.holds("T-13")
def test_streams_past_the_open_cap_are_reset_and_the_session_lives() -> None:
    client, server = End(client=True), End(client=False, limits=Limits(open_streams=2))
    client.other, server.other = server, client
    streams = [client.mux.open() for _ in range(3)]
    settle(client, server)
    assert server.refused == [streams[2]]
    assert client.peer_reset == {streams[2]}
    client.mux.reset(streams[0])
    again = client.mux.open()
    settle(client, server)
    assert again in server.unaccepted, "a place that became free is given again"


def test_half_open_streams_of_the_peer_have_a_cap_of_their_own() -> None:
    _, server = pair(Limits(half_open_streams=2))
    events = server.feed(b"".join(pack(WINDOW, SYN, stream, 0) for stream in (1, 3, 5)))
    assert events == [Opened(1), Opened(3), Refused(5, "half_open_streams=2")]
    server.mux.accept(1)
    assert server.feed(pack(WINDOW, SYN, 7, 0)) == [Opened(7)]


def test_opening_past_a_limit_names_the_limit() -> None:
    with pytest.raises(StreamLimit, match="open_streams=1"):
        _exhaust(Mux(client=True, limits=Limits(open_streams=1)), 2)
    with pytest.raises(StreamLimit, match="half_open_streams=1"):
        _exhaust(Mux(client=True, limits=Limits(half_open_streams=1)), 2)


def test_the_last_id_is_used_and_then_the_session_has_none_left() -> None:
    mux = Mux(client=True)
    mux._next_id = LARGEST_U32
    assert mux.open() == LARGEST_U32
    with pytest.raises(StreamLimit, match="stream ids"):
        mux.open()


def _exhaust(mux: Mux, streams: int) -> None:
    for _ in range(streams):
        mux.open()


@pytest.mark.holds("T-18")
def test_rapid_resets_end_the_session_and_slow_ones_do_not() -> None:
    limits = Limits(resets_per_second=3)
    _, slow = pair(limits)
    for i in range(20):
        frames = (pack(WINDOW, SYN, 2 * i + 1, 0), pack(WINDOW, RST, 2 * i + 1, 0))
        assert _breach(slow, *frames, now=float(i)) is None
    _, rapid = pair(limits)
    found = [
        _breach(rapid, pack(WINDOW, SYN, stream, 0), pack(WINDOW, RST, stream, 0), now=0.5)
        for stream in (1, 3, 5, 7)
    ]
    assert found == [None, None, None, Breach.RESET_FLOOD]


def test_stray_data_on_forgotten_streams_counts_as_a_flood() -> None:
    client, server = pair(Limits(resets_per_second=3))
    stream = client.mux.open()
    client.mux.finish(stream)
    settle(client, server)
    server.mux.finish(stream)
    settle(client, server)
    stray = pack(DATA, 0, stream, 1) + b"x"
    assert [_breach(server, stray) for _ in range(4)] == [None, None, None, Breach.RESET_FLOOD]


@pytest.mark.holds("T-18")
def test_pings_have_a_budget_though_their_answers_are_read() -> None:
    def ping(end: End, *, now: float) -> Breach | None:
        found = _breach(end, pack(PING, SYN, 0, 7), now=now)
        while end.mux.next_outgoing() is not None:
            pass
        return found

    _, slow = pair(Limits(pings_per_second=3))
    assert all(ping(slow, now=float(i)) is None for i in range(20)), "the control: one a second"
    _, rapid = pair(Limits(pings_per_second=3))
    assert [ping(rapid, now=0.5) for _ in range(4)] == [None, None, None, Breach.PING_FLOOD]


SAYING_NOTHING = {
    "data": pack(DATA, 0, 1, 0),
    "credit": pack(WINDOW, 0, 1, 0),
    "an answer nobody asked for": pack(PING, ACK, 0, 9),
    "a go-away after the first": pack(GO_AWAY, 0, 0, 0),
}


@pytest.mark.holds("T-18")
@pytest.mark.parametrize("frame", SAYING_NOTHING.values(), ids=SAYING_NOTHING)
def test_frames_that_say_nothing_have_a_budget(frame: bytes) -> None:
    begun = (pack(WINDOW, SYN, 1, 0), pack(GO_AWAY, 0, 0, 0))
    _, slow = pair(Limits(empty_frames_per_second=3))
    assert _breach(slow, *begun) is None
    one_a_second = (_breach(slow, frame, now=float(i)) for i in range(20))
    assert all(breach is None for breach in one_a_second), "the control: one a second"
    _, rapid = pair(Limits(empty_frames_per_second=3))
    assert _breach(rapid, *begun) is None
    assert [_breach(rapid, frame) for _ in range(4)] == [None, None, None, Breach.EMPTY_FLOOD]
    _, busy = pair(Limits(empty_frames_per_second=3))
    says_something = pack(WINDOW, 0, 1, 1)
    assert _breach(busy, *begun, *[says_something] * 20) is None, "the control: these say something"


def test_a_peer_that_asks_for_answers_and_reads_none_ends_the_session() -> None:
    _, server = pair(Limits(control_frames=5))
    found = [_breach(server, pack(PING, SYN, 0, value)) for value in range(6)]
    assert found == [None] * 5 + [Breach.CONTROL_BACKLOG]


def test_pings_that_are_never_answered_cost_one_entry() -> None:
    client, _ = pair()
    for now in range(100):
        client.mux.ping(float(now))
        client.transmit()
    assert len(client.mux._trips) == 1


def test_a_limit_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="open_streams=0"):
        Limits(open_streams=0)
