from __future__ import annotations

import tracemalloc

import pytest

from inference_fleet.tunnel.inbox import Inbox
from inference_fleet.tunnel.yamux.wire import INITIAL_WINDOW

_SHARE = 1.25


def test_what_was_kept_comes_out_in_order_whatever_its_pieces_were() -> None:
    inbox, said = Inbox(), bytearray()
    for length in (1, 2, 5000, 3, 4095, 4096, 1, 70_000, 9):
        piece = bytes((len(said) + i) % 251 for i in range(length))
        inbox.keep(memoryview(piece))
        said += piece
    assert inbox.length == len(said)
    assert inbox.take(2000) == said[:2000]
    rest = b""
    while inbox:
        rest += inbox.first()
    assert rest == said[2000:]
    assert inbox.length == 0


def test_a_buffer_that_is_used_again_does_not_change_what_was_kept() -> None:
    inbox, buffer = Inbox(), bytearray(b"a" * 5000)
    inbox.keep(memoryview(buffer))
    inbox.keep(memoryview(buffer)[:3])
    buffer[:] = b"b" * 5000
    assert inbox.take(5003) == b"a" * 5003


@pytest.mark.holds("T-12")
@pytest.mark.parametrize("length", [2, 60, 4000, 65_536])
def test_a_window_of_pieces_of_any_size_costs_hardly_more_than_a_window(length: int) -> None:
    piece = memoryview(bytes(length))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        inbox = Inbox()
        for _ in range(INITIAL_WINDOW // length):
            inbox.keep(piece)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert inbox.length > INITIAL_WINDOW - length
    assert after - before <= _SHARE * INITIAL_WINDOW, f"{(after - before) / INITIAL_WINDOW:.1f} windows"
