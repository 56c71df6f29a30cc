"""The drill's own judgement, over a fleet that behaves as a spec says: what it must not call held."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from blackstart.fleet.chat import Chat, Result
from blackstart.fleet.checks import NotReached
from blackstart.fleet.drill import STREAMS_A_WAY, WAYS, Drill, Way
from blackstart.fleet.scrape import BackendStats

if TYPE_CHECKING:
    from blackstart.fleet.fleet import Fleet

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
        (DOOMED, _chat(text=TEXT[:-1]), "reads complete and lacks 1 characters"),
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


@pytest.mark.parametrize("more", [-1, 1], ids=["lost", "answered-twice"])
def test_every_request_began_exactly_one_generation(more: int) -> None:
    asked = len(WAYS) * STREAMS_A_WAY // 2
    before = [BackendStats(active=0, started=0, finished=0, tokens=0)] * 2
    _drill(Played(owners=[], started=asked))._answered_once(before)
    with pytest.raises(AssertionError, match=f"began {asked + more} generations for {asked} requests"):
        _drill(Played(owners=[], started=asked + more))._answered_once(before)


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
