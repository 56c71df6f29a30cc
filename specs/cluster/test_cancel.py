"""A client that hangs up ends the work it asked for, wherever it stood; one whose time is up blames nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.fleet.chat import Result

from .reaps import nothing_was_reaped

if TYPE_CHECKING:
    from blackstart.fleet import Fleet

TOKENS = 120
PACE = 2.0  # tokens a second: the whole answer would take a minute


@pytest.mark.cluster(frontends=2, workers=1)
def test_a_client_that_hangs_up_ends_the_generation_streamed_or_not_local_or_relayed(fleet: Fleet) -> None:
    for via, stream in ((0, True), (0, False), (1, True), (1, False)):
        _hang_up(fleet, via=via, stream=stream)


def _hang_up(fleet: Fleet, *, via: int, stream: bool) -> None:
    timings = fleet.timings
    before = fleet.backend_stats(0)
    pending = fleet.open_chat(via=via, stream=stream, max_tokens=TOKENS, pace=PACE, seed=3)
    within = timings.stream_open_s + timings.backend_connect_s
    eventually(lambda: fleet.backend_stats(0).active, 1, within=within, watch=fleet.watch)
    if stream:
        pending.wait_for_text(within=within)
    pending.hang_up()
    # a hang-up travels as resets, so it needs no time-out of anybody
    ended = eventually(
        lambda: fleet.backend_stats(0),
        lambda seen: seen.active == 0,
        within=timings.keepalive_timeout_s,
        watch=fleet.watch,
    )
    assert ended.started == before.started + 1
    assert ended.finished == before.finished, "it was made to its end for a client that had left"
    assert ended.tokens - before.tokens < TOKENS / 2
    assert pending.chat.result is Result.CUT
    # the control: a client that stays gets all of it, by the same way, counted as finished
    chat = fleet.chat(via=via, stream=stream, max_tokens=8, seed=3)
    assert (chat.ok, chat.route) == (True, ("local", "relayed")[via])
    assert fleet.backend_stats(0).finished == before.finished + 1


@pytest.mark.holds("B-64")
@pytest.mark.cluster(frontends=2, workers=1)
def test_a_caller_whose_time_is_up_blames_no_peer_and_no_worker(fleet: Fleet) -> None:
    fleet.wait_owner(0, 0)
    assert fleet.chat(via=1).route == "relayed"
    # the owner stands still, so the relay cannot be answered before the caller's time is up
    budget = f"{fleet.timings.heartbeat_s * 1000:.0f}"
    fleet.frontend(0).pause()
    try:
        chat = fleet.chat(via=1, headers={"X-Blackstart-Budget-Ms": budget})
    finally:
        fleet.frontend(0).resume()
    assert (chat.result, chat.error, chat.status) == (Result.ERROR, "deadline_exceeded", 504), str(chat)
    seen = fleet.metrics(1)
    assert seen.total("blackstart_dials_total", outcome="peer-unreachable") == 0
    assert seen.total("blackstart_dials_total", outcome="tunnel-failed") == 0
    assert seen.total("blackstart_dials_total", outcome="opened") == 1
    nothing_was_reaped(fleet)
    # the control: with time enough the same way works
    eventually(lambda: fleet.chat(via=1).ok, True, within=fleet.timings.handshake_s, watch=fleet.watch)
