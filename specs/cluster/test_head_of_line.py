"""Small requests beside bulk on one worker's session: it costs them latency and never service, direct and relayed.

What bulk is here: the answer of a model process that sends its weights from a file, through `/v1`. What was measured is
in the journal as marks and in the log of every process. Each spec needs the disk of its weights and of its logs; room
for two of them is asked for before anything is started.

| bound                                              | is  | seen in ten runs, direct and relayed, on two busy cores |
|----------------------------------------------------|-----|---------------------------------------------------------|
| worst small request, part of the transfer's window | 0.5 | 0.01 to 0.07                                            |
| the same, times the worst beside nothing moved     | 30  | 0.7 to 9.9                                              |
| the transfer's window, times that of nothing moved | 8   | 92 and more                                             |
| relayed over direct                                | 8   | 0.5 to 3.9                                              |
"""

from __future__ import annotations

import json
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from blackstart.cluster.disk import require_disk
from blackstart.cluster.waiting import eventually
from blackstart.core.head_of_line import objections
from blackstart.pytest_plugin.host import host_of

from . import weights
from .moving import WEIGHTS, beside, door, take_rest, wait_warm

if TYPE_CHECKING:
    from blackstart.core.head_of_line import Beside
    from blackstart.fleet import Fleet
    from blackstart.record import Journal

    from .moving import Door

BULK_BYTES: Final = 256 * 1024 * 1024
DISK_BYTES: Final = 2 * (BULK_BYTES + 32 * 1024 * 1024)
"""Each of the two specs here has its weights and logs on disk, and two specs run at once."""

EMPTY_LOADS: Final = 50
WORST_TIMES: Final = 30.0
RELAYED_TIMES: Final = 8.0
WORDS: Final = 50
LOOKS: Final = 8

WEIGHTS_COMMAND: Final = (
    "{python}",
    str(Path(weights.__file__)),
    *("--port", "{port}", "--folder", "{data_dir}", "--size", str(BULK_BYTES)),
)


@pytest.fixture
def room(request: pytest.FixtureRequest) -> int:
    """The disk, before anything is started."""
    return require_disk(host_of(request.config).run.dir, needed=DISK_BYTES, what="moving weights")


@pytest.mark.holds("B-226", "B-237", "B-239", "B-242")
@pytest.mark.usefixtures("room")
@pytest.mark.cluster(frontends=2, workers=1, spread=True, commands={WEIGHTS: WEIGHTS_COMMAND})
def test_small_requests_are_answered_while_bulk_crosses_their_session(fleet: Fleet, journal: Journal) -> None:
    wait_warm(fleet)
    owner = fleet.wait_owner(0, 0)
    whole = weights.checksum(BULK_BYTES)
    windows = {}
    for via, route in ((0, "local"), (1, "relayed")):
        # the control first: the same load with nothing to move
        empty, loads, words = beside(fleet, via=via, moving=False, times=EMPTY_LOADS)
        assert {one.size for one in loads} == {0}
        assert {one.route for one in loads + words} == {route}
        bulk, loads, words = beside(fleet, via=via, moving=True, times=1)
        assert [(one.size, one.checksum) for one in loads] == [(BULK_BYTES, whole)]
        assert {one.route for one in loads + words} == {route}
        _tell(fleet, journal, route, empty=empty, bulk=bulk)
        said = objections(empty=empty, bulk=bulk, times=WORST_TIMES)
        assert not said, f"{route}: {'; '.join(said)}"
        windows[route] = bulk.window
    assert fleet.owner_of(0) == owner, "the worker moved meanwhile: it was not one session"
    ratio = windows["relayed"] / windows["local"]
    journal.write("mark", spec=fleet.spec, what="relayed over direct", times=round(ratio, 2))
    assert ratio < RELAYED_TIMES, f"relayed took {ratio:.2f} times as long as direct"


@pytest.mark.holds("B-226")
@pytest.mark.usefixtures("room")
@pytest.mark.cluster(frontends=2, workers=1, spread=True, commands={WEIGHTS: WEIGHTS_COMMAND})
@pytest.mark.parametrize(("via", "route"), [(0, "local"), (1, "relayed")])
def test_an_answer_that_nobody_reads_holds_up_no_other_of_its_session(
    fleet: Fleet, via: int, route: str
) -> None:
    wait_warm(fleet)
    with door(fleet, via=via) as loading, door(fleet, via=via) as asking:
        before = asking.sent()
        unread = loading.open(WEIGHTS, messages=[], weights=True)
        _answered(asking, route)
        stalled = _standstill(fleet, asking)
        assert before < stalled < before + BULK_BYTES, "nothing is stalled: buffers took the whole answer"
        _answered(asking, route)
        assert asking.sent() == stalled, "somebody read it after all"
        # the control: it was stalled by its reader alone
        assert take_rest(unread) == (BULK_BYTES, weights.checksum(BULK_BYTES))


def _answered(asking: Door, route: str) -> None:
    """Small requests, one after another, each to its end."""
    for number in range(WORDS):
        held_up = ""
        try:
            word = asking.word()
        except (OSError, HTTPException, AssertionError) as error:
            held_up = repr(error)
        assert not held_up, f"small request {number} was held up by an answer that nobody reads: {held_up}"
        assert word.route == route


def _standstill(fleet: Fleet, asking: Door) -> int:
    """What the model process has got rid of, once it gets rid of no more."""
    seen: list[int] = []

    def looks() -> bool:
        seen.append(asking.sent())
        return len(seen) > LOOKS and len(set(seen[-LOOKS:])) == 1

    eventually(looks, True, within=fleet.timings.start_s, watch=fleet.watch)
    return seen[-1]


def _tell(fleet: Fleet, journal: Journal, route: str, *, empty: Beside, bulk: Beside) -> None:
    """The evidence a person reads, before anything is judged by it."""
    told: dict[str, Any] = {
        "route": route,
        "bytes": BULK_BYTES,
        "empty": empty.told,
        "bulk": bulk.told,
        "mb_per_s": round(BULK_BYTES / bulk.window / 1e6, 1),
        "worst_of_window": round(bulk.worst / bulk.window, 3),
        "worst_of_empty_worst": round(bulk.worst / empty.worst, 1),
    }
    journal.write("mark", spec=fleet.spec, what="head of line", **told)
    fleet.note(f"head of line: {json.dumps(told)}")
