from __future__ import annotations

import pytest

from inference_fleet.tunnel.yamux.stalls import Stalls
from inference_fleet.tunnel.yamux.wire import ACK, INITIAL_WINDOW, RST, WINDOW, pack

from .ends import pair, settle

NOTICE_S = 5.0


def test_a_wait_becomes_a_stall_after_the_notice_time_and_is_told_once() -> None:
    stalls = Stalls()
    stalls.begin(3)
    assert stalls.look(0.0, NOTICE_S) == []
    assert stalls.look(NOTICE_S / 2, NOTICE_S) == []
    assert stalls.look(NOTICE_S, NOTICE_S) == [3]
    assert [stalls.look(NOTICE_S * n, NOTICE_S) for n in range(2, 9)] == [[]] * 7, "told more than once"


def test_a_wait_that_ended_and_began_again_is_another_one() -> None:
    stalls = Stalls()
    for begun in (0.0, 100.0):
        stalls.begin(3)
        stalls.look(begun, NOTICE_S)
        assert stalls.look(begun + NOTICE_S, NOTICE_S) == [3]
        stalls.end(3)
    stalls.begin(3)
    stalls.look(200.0, NOTICE_S)
    stalls.end(3)
    stalls.begin(3)
    assert stalls.look(200.0 + NOTICE_S, NOTICE_S) == [], "two short waits are not one long one"


@pytest.mark.holds("T-76")
def test_a_stream_waits_from_its_last_credit_to_its_next_and_no_other_stream_does() -> None:
    client, server = pair()
    stuck, free = client.mux.open(), client.mux.open()
    client.write(stuck, INITIAL_WINDOW + 1)
    client.write(free, 100)
    settle(client, server)
    assert stuck in client.mux.stalls
    assert free not in client.mux.stalls
    assert len(server.mux.stalls) == 0, "the end that does not wait"
    server.mux.consumed(stuck, INITIAL_WINDOW)
    settle(client, server)
    assert len(client.mux.stalls) == 0


@pytest.mark.parametrize("ended", ["here", "there"])
def test_a_stream_that_is_gone_waits_no_more(ended: str) -> None:
    client, server = pair()
    stream = client.mux.open()
    client.write(stream, INITIAL_WINDOW + 1)
    settle(client, server)
    assert stream in client.mux.stalls
    if ended == "here":
        client.mux.reset(stream)
    else:
        client.feed(pack(WINDOW, ACK, stream, 0) + pack(WINDOW, RST, stream, 0))
    assert len(client.mux.stalls) == 0
