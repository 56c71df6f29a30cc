"""The drill's own judgement, over a fleet that behaves as a spec says: what it must not call held."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from blackstart.cluster.waiting import Waiter, WaitTimeout, installed
from blackstart.fleet.chat import Chat, Result
from blackstart.fleet.checks import NotReached
from blackstart.fleet.drill import STREAMS_A_WAY, WAYS, Drill, Way, _need_in_flight
from blackstart.fleet.scrape import BackendStats
from inference_fleet.settings import Timings

if TYPE_CHECKING:
    from collections.abc import Callable

    from blackstart.fleet.fleet import Fleet

ASKED = len(WAYS) * STREAMS_A_WAY // 2
TEXT = "the grid comes back by itself"


class Played:
    """A fleet of a few answers."""

    def __init__(self, *, owners: list[int], chat: Chat | None = None, started: int = 0) -> None:
        self._owners = owners
        self._chat = chat or _chat()
        self._started = started

    def wait_owner(self, worker: int, frontend: int) -> Any:
        assert worker == 0
        assert self._owners.pop(0) == frontend
        return SimpleNamespace(epoch=7)

    def owner_index(self, worker: int) -> int:
        assert worker == 0
        return self._owners.pop(0)

    def chat(self, **_: Any) -> Chat:
        return self._chat

    def node_id(self, worker: int) -> str:
        return f"node-{worker}"

    def backend_stats(self, _: int) -> BackendStats:
        return BackendStats(active=0, started=self._started, finished=0, tokens=0)


def _chat(**changes: Any) -> Chat:
    given = {"result": Result.COMPLETE, "text": TEXT[:10], "node": "node-0", "route": "relayed", **changes}
    return Chat(**given)


def _drill(fleet: Played) -> Drill:
    drill = Drill(cast("Fleet", fleet), seed=1, tagged=list)
    drill._ready = True
    drill._reference = {0: TEXT, 1: TEXT}
    return drill


def test_a_relayed_answer_counts_while_the_owner_is_the_same_after_as_before() -> None:
    assert "gave the same text" in _drill(Played(owners=[0, 0])).chat_relayed()


@pytest.mark.holds("B-223")
def test_an_answer_during_which_the_worker_moved_proves_no_relay() -> None:
    with pytest.raises(AssertionError, match="worker-0 moved to frontend-1 meanwhile"):
        _drill(Played(owners=[0, 1])).chat_relayed()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"route": "local"}, "went local to node-0, wanted relayed"),
        ({"node": "node-1"}, "went relayed to node-1"),
        ({"text": "another text"}, "another text than before"),
        ({"text": " "}, "an empty text"),
        ({"result": Result.CUT}, "no answer: cut"),
    ],
)
def test_an_answer_that_is_not_the_one_known_is_a_failure(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        _drill(Played(owners=[0, 0], chat=_chat(**changes))).chat_relayed()


LOCAL, DOOMED = Way(1, 1), Way(0, 0)


@pytest.mark.parametrize(
    ("way", "chat"),
    [
        (LOCAL, _chat(text=TEXT)),
        (DOOMED, _chat(result=Result.CUT, text=TEXT[:5])),
        (DOOMED, _chat(result=Result.CUT, text="")),
        (Way(1, 0), _chat(result=Result.ERROR, error="stream_broken", text=TEXT[:5])),
    ],
)
def test_a_stream_may_end_complete_in_a_named_error_or_cut(way: Way, chat: Chat) -> None:
    _drill(Played(owners=[]))._judge(way, chat)


@pytest.mark.parametrize(
    ("way", "chat", "said"),
    [
        (DOOMED, _chat(result=None), "has no end"),
        (DOOMED, _chat(result=Result.CUT, text="something else"), "said 'something else', known"),
        (LOCAL, _chat(text=TEXT[:-1]), "reads complete and lacks 1 characters"),
        (DOOMED, _chat(result=Result.ERROR, error="unnamed", text=""), "an error without a name"),
        (
            LOCAL,
            _chat(result=Result.CUT, text=TEXT[:5]),
            "never depended on the killed replica and ended cut",
        ),
    ],
)
def test_a_stream_that_ends_in_any_other_way_is_a_failure(way: Way, chat: Chat, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        _drill(Played(owners=[]))._judge(way, chat)


@pytest.mark.parametrize("way", [way for way in WAYS if way != LOCAL], ids=str)
def test_a_stream_over_the_killed_replica_that_reads_complete_was_not_in_flight(way: Way) -> None:
    with pytest.raises(AssertionError, match="reads complete over the killed replica: it was not in flight"):
        _drill(Played(owners=[]))._judge(way, _chat(text=TEXT))


class Busy:
    """Two backends whose counters go on by one reading a moment."""

    timings = Timings.drill()
    watch = ()

    def __init__(self, active: Callable[[int, int], int]) -> None:
        self._active = active
        self._moment = 0

    def backend_stats(self, worker: int) -> BackendStats:
        self._moment += 1
        return BackendStats(active=self._active(worker, self._moment), started=0, finished=0, tokens=0)


def _wait_active(active: Callable[[int, int], int]) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    idle = [BackendStats(active=0, started=0, finished=0, tokens=0)] * 2
    drill = Drill(cast("Fleet", Busy(active)), seed=1, tagged=list)
    with installed(Waiter(clock=lambda: now[0], sleep=sleep)):
        drill._wait_active(idle)


def test_streams_of_both_backends_have_to_be_under_way_at_one_moment() -> None:
    _wait_active(lambda _, moment: ASKED if moment > 4 else 0)  # the control
    # The first backend's end exactly when the second's begin: each is seen full, and never both.
    with pytest.raises(WaitTimeout, match="not seen within"):
        _wait_active(lambda worker, moment: ASKED if (worker == 0) == (moment <= 4) else 0)


def test_a_stream_that_ended_before_the_kill_was_not_in_flight() -> None:
    streams = [(way, cast("Any", SimpleNamespace(ended=False))) for way in WAYS]
    _need_in_flight(streams)
    streams[2][1].ended = True
    with pytest.raises(
        AssertionError, match="1 of 4 had ended before the kill: the relayed stream via frontend-1"
    ):
        _need_in_flight(streams)


@pytest.mark.parametrize("more", [-1, 1], ids=["lost", "answered-twice"])
def test_every_request_began_exactly_one_generation(more: int) -> None:
    before = [BackendStats(active=0, started=0, finished=0, tokens=0)] * 2
    _drill(Played(owners=[], started=ASKED))._answered_once(before)
    with pytest.raises(AssertionError, match=f"began {ASKED + more} generations for {ASKED} requests"):
        _drill(Played(owners=[], started=ASKED + more))._answered_once(before)


def test_at_least_eight_streams_are_under_way_half_of_them_relayed() -> None:
    routes = [way.route for way in WAYS for _ in range(STREAMS_A_WAY)]
    assert len(routes) >= 8
    assert routes.count("local") == routes.count("relayed")


def test_checks_without_their_ground_are_not_reached() -> None:
    drill = Drill(cast("Fleet", Played(owners=[])), seed=1, tagged=list)
    later = [step for step in drill.steps() if step.id != "ready"]
    assert len(later) == 8
    for step in later:
        with pytest.raises(NotReached):
            step.make()


def test_the_checks_have_their_ids_in_order() -> None:
    ids = [step.id for step in Drill(cast("Fleet", Played(owners=[])), seed=1, tagged=list).steps()]
    assert ids == [
        "ready",
        "chat-local",
        "chat-relayed",
        "owner-killed",
        "rehomed",
        "chat-after",
        "restarted",
        "relayed-after",
        "no-leaks",
    ]
