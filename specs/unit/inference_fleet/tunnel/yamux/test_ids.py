from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest

from inference_fleet.tunnel.yamux.ids import PeerIds
from inference_fleet.tunnel.yamux.limits import Limits
from inference_fleet.tunnel.yamux.wire import Breach, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

LEAPS = 200


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
    assert (ids._skipped, len(ids._gaps)) == (8, 1)
    assert ids.used(1)
    assert _breach_of(ids, 1) is Breach.ID_REUSE
    assert _breach_of(ids, 2**32 - 3) is None


def test_gaps_are_those_of_a_plain_set_whatever_is_skipped_and_opened_late() -> None:
    draw = random.Random(7)  # noqa: S311  # which ids, not a secret
    for remembered in (1, 3, 8):
        ids, skipped, highest = PeerIds(odd=True, remembered=remembered), list[int](), -1
        for _ in range(400):
            late = bool(skipped) and draw.random() < 0.4
            stream = draw.choice(skipped) if late else highest + 2 * draw.choice((1, 1, 2, 5, 40))
            if late:
                skipped.remove(stream)
            else:
                skipped = [*skipped, *range(highest + 2, stream, 2)][-remembered:]
                highest = stream
            ids.take(stream)
            assert [n for n in range(1, highest + 4, 2) if not ids.used(n)] == [*skipped, highest + 2]


def _cpu_s(taken: Iterable[int]) -> float:
    ids = PeerIds(odd=True, remembered=Limits().remembered_ids)
    began = time.thread_time()
    for stream in taken:
        ids.take(stream)
    return time.thread_time() - began


@pytest.mark.holds("T-14")
def test_a_leap_costs_no_more_than_a_few_opens_in_order_however_far_it_goes() -> None:
    """What it costs is told against opens in order; of several runs the least disturbed one counts."""
    far = 4 * Limits().remembered_ids
    in_order = min(_cpu_s(range(1, 2 * LEAPS, 2)) for _ in range(5))
    leaping = min(_cpu_s(range(1, far * LEAPS, far)) for _ in range(5))
    assert leaping < 60 * in_order, f"a leap costs {leaping / in_order:.0f} times an open in order"
