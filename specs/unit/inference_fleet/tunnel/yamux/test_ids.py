from __future__ import annotations

import pytest

from inference_fleet.tunnel.yamux.ids import PeerIds
from inference_fleet.tunnel.yamux.wire import Breach, ProtocolError


def _breach_of(ids: PeerIds, stream: int) -> Breach | None:
    try:
        ids.take(stream)
    except ProtocolError as error:
        return error.breach
    return None


def test_ids_of_the_wrong_parity_are_a_breach_and_those_of_the_right_one_are_not() -> None:
    dialling, accepting = PeerIds(odd=True, remembered=8), PeerIds(odd=False, remembered=8)
    assert _breach_of(dialling, 2) is Breach.ID_PARITY
    assert _breach_of(accepting, 1) is Breach.ID_PARITY
    assert _breach_of(dialling, 1) is None
    assert _breach_of(accepting, 2) is None


def test_ids_may_come_out_of_order_but_never_twice() -> None:
    ids = PeerIds(odd=True, remembered=8)
    assert [_breach_of(ids, stream) for stream in (5, 1, 3, 9, 7)] == [None] * 5
    assert [_breach_of(ids, stream) for stream in (1, 3, 5, 7, 9)] == [Breach.ID_REUSE] * 5


def test_a_gap_is_not_used_until_it_is_opened() -> None:
    ids = PeerIds(odd=False, remembered=8)
    ids.take(6)
    assert (ids.used(2), ids.used(4), ids.used(6), ids.used(8)) == (False, False, True, False)
    ids.take(4)
    assert ids.used(4)


@pytest.mark.holds("T-12")
def test_a_leap_costs_bounded_memory_and_older_gaps_count_as_used() -> None:
    ids = PeerIds(odd=True, remembered=8)
    ids.take(2**32 - 1)
    assert len(ids._skipped) == 8
    assert ids.used(1)
    assert _breach_of(ids, 1) is Breach.ID_REUSE
    assert _breach_of(ids, 2**32 - 3) is None
