from __future__ import annotations

from inference_fleet.tunnel.yamux.lingering import Lingering


def test_of_streams_that_were_reset_so_many_are_remembered_the_oldest_forgotten_first() -> None:
    lingering = Lingering(remembered=3)
    for stream in (1, 3, 5, 7, 9):
        lingering.begin(stream, stream * 10)
    left = [stream for stream in (1, 3, 5, 7, 9) if lingering.credit(stream) is not None]
    assert left == [5, 7, 9], f"three are remembered at most: {left}"
    lingering.brought(7, 60)
    lingering.end(9)
    assert [lingering.credit(stream) for stream in (5, 7, 9)] == [50, 10, None]
    lingering.brought(9, 1)
    assert lingering.credit(9) is None, "one that is over lingers again"
