"""Who goes next, with windows of any size: by bytes, control before credit before data."""

from __future__ import annotations

from collections import Counter

import pytest

from inference_fleet.tunnel.yamux import Limits
from inference_fleet.tunnel.yamux.wire import DATA, INITIAL_WINDOW, PING, WINDOW, pack, unpack

from .ends import End, pair, settle

LARGE = 32 * INITIAL_WINDOW


def _sending(streams: int) -> tuple[End, End, list[int]]:
    """A sender whose streams all have large windows."""
    client, server = pair()
    opened = [client.mux.open() for _ in range(streams)]
    settle(client, server)
    for stream in opened:
        client.feed(pack(WINDOW, 0, stream, LARGE))
    return client, server, opened


@pytest.mark.holds("T-15")
def test_streams_that_write_in_pieces_of_any_size_share_by_bytes_at_every_moment() -> None:
    client, _, streams = _sending(4)
    pieces = dict(zip(streams, (1, 3_000, 65_537, 1_000_000), strict=True))
    cap = Limits().frame_bytes
    left = dict.fromkeys(streams, 20 * cap)

    def top_up(stream: int) -> None:
        """Its writer keeps two frames' worth waiting, in pieces of its own size."""
        while left[stream] and client.mux._streams[stream].waiting < 2 * cap:
            piece = min(pieces[stream], left[stream])
            client.mux.offer(stream, piece)
            left[stream] -= piece

    for stream in streams:
        top_up(stream)
    sent: Counter[int] = Counter()
    while all(left.values()):
        outgoing = client.mux.next_outgoing()
        assert outgoing is not None
        assert 0 < outgoing.length <= cap
        sent[outgoing.stream] += outgoing.length
        top_up(outgoing.stream)
        assert max(sent.values()) - min(sent[stream] for stream in streams) <= cap, f"unfair: {sent}"


@pytest.mark.holds("T-15")
def test_control_goes_before_credit_and_both_before_data_at_every_frame_of_a_large_window() -> None:
    client, server, (stream,) = _sending(1)
    reply = server.mux.open()
    settle(client, server)
    client.mux.accept(reply)
    settle(client, server)
    client.write(stream, LARGE)
    kinds = []
    for at in range(30):
        if at % 3 == 1:
            client.mux.consumed(reply, INITIAL_WINDOW // 2)
            client.mux.ping(0.0)
        outgoing = client.mux.next_outgoing()
        assert outgoing is not None
        kinds.append(unpack(outgoing.header).type)
    assert kinds == [DATA, PING, WINDOW] * 10
