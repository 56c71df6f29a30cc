"""Nothing, not yet, and could-not-be-read are three different things a roster probe sees."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from blackstart.fleet.roster import ABSENT, NodeEntry, RosterProbe

HEALTHY = {
    "name": "worker-0",
    "id": "n1",
    "status": "healthy",
    "presence": "connected",
    "address": "",
    "models": [],
}


class Replica:
    """Answers what it is told to, in turn, the last one for ever."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self._answers = list(answers)

    def __call__(self) -> httpx2.Response:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def _lists(*nodes: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, json=list(nodes))


def _refuses() -> httpx2.Response:
    return httpx2.Response(401, json={"error": {"message": "who are you", "code": "unauthorized"}})


@pytest.mark.holds("B-196")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (_refuses(), "answered 401"),
        (httpx2.Response(200, text="<html>"), "JSONDecodeError"),
        (httpx2.Response(200, json={"nodes": []}), "not a list of objects"),
        (httpx2.ConnectError("refused"), "ConnectError: refused"),
    ],
)
def test_an_error_is_told_as_the_error_and_never_as_an_empty_list(
    answer: httpx2.Response | Exception, said: str
) -> None:
    look = RosterProbe("frontend-0", Replica(answer))()
    assert look.error is not None
    assert said in look.error
    assert said in str(look)
    assert "never read" in str(look)


@pytest.mark.holds("B-196")
def test_an_empty_roster_is_no_error_and_says_no_nodes() -> None:
    look = RosterProbe("frontend-0", Replica(_lists()))()
    assert (look.error, look.nodes) == (None, ())
    assert str(look) == "frontend-0: no nodes"


@pytest.mark.holds("B-196")
def test_the_last_good_roster_stays_beside_a_later_error_and_the_error_beside_a_later_roster() -> None:
    probe = RosterProbe("frontend-0", Replica(_lists(HEALTHY), _refuses(), _lists()))
    probe()
    look = probe()
    assert look.nodes == ()
    assert "answered 401" in str(look)
    assert "last good roster: worker-0(status='healthy'" in str(look)
    probe()
    assert "last error" in str(probe)
    assert "answered 401" in str(probe)


@pytest.mark.holds("B-197")
def test_a_key_that_moved_is_not_a_key_that_is_empty() -> None:
    empty = NodeEntry(HEALTHY)
    moved = NodeEntry({**{key: value for key, value in HEALTHY.items() if key != "address"}, "addr": ""})
    assert empty.present_and_empty("address")
    assert not moved.present_and_empty("address")
    assert "no key 'address' among addr, id" in moved.text("address")


@pytest.mark.holds("B-197")
def test_raw_keys_are_kept_as_they_came() -> None:
    look = RosterProbe("frontend-0", Replica(_lists({**HEALTHY, "later_key": {"deep": 1}})))()
    assert look.nodes[0].raw["later_key"] == {"deep": 1}


@pytest.mark.holds("B-198")
@pytest.mark.parametrize("answer", [_refuses(), httpx2.ConnectError("refused"), _lists({"name": "worker-0"})])
def test_a_status_that_could_not_be_read_equals_no_status(answer: httpx2.Response | Exception) -> None:
    status = RosterProbe("frontend-0", Replica(answer))().value("worker-0", "status")
    assert status not in {"healthy", "unhealthy", "offline", "pending", "draining", "", None}
    assert status.startswith("<unreadable: ")


@pytest.mark.holds("B-198")
def test_a_node_that_is_not_listed_is_absent_and_neither_offline_nor_unreadable() -> None:
    look = RosterProbe("frontend-0", Replica(_lists(HEALTHY)))()
    assert look.value("worker-1", "status") == ABSENT
    assert look.value("worker-0", "status") == "healthy"


def test_a_status_that_is_no_text_is_unreadable() -> None:
    assert NodeEntry({"status": None}).status == "<unreadable: status=None is no text>"


def test_two_rosters_are_compared_by_ids() -> None:
    one = RosterProbe("frontend-0", Replica(_lists(HEALTHY)))()
    same_name = RosterProbe("frontend-1", Replica(_lists({**HEALTHY, "id": "n2"})))()
    assert one.names == same_name.names
    assert one.ids != same_name.ids


@pytest.mark.parametrize(
    ("changed", "states", "serves"),
    [
        ({}, ["ready", "ready"], True),
        ({}, ["ready", "starting"], False),
        ({}, ["ready"], False),
        ({"status": "pending"}, ["ready", "ready"], False),
        ({"presence": "reconnecting"}, ["ready", "ready"], False),
    ],
)
def test_a_node_serves_when_it_is_well_and_all_that_is_asked_of_it_is_ready(
    changed: dict[str, str],
    states: list[str],
    serves: bool,  # noqa: FBT001 -- parametrised
) -> None:
    node = NodeEntry({**HEALTHY, **changed, "models": [{"name": "m", "state": state} for state in states]})
    assert node.serves(2) is serves, (
        f"{changed or 'a healthy node'} with {states} is taken for one that serves two models"
    )
