"""Which request meets which fate, and the account of it."""

from __future__ import annotations

import pytest

from blackstart.net.balancer.head import RequestHead
from blackstart.net.balancer.rules import (
    LONGEST_RECORD,
    MOST_PATHS,
    OTHER_PATHS,
    Account,
    Action,
    Dial,
    Fate,
    RoundRobin,
    RuleBook,
)

TUNNEL = r"^/api/node/[^/]+/tunnel$"


def head(path: str) -> RequestHead:
    return RequestHead("GET", path, "HTTP/1.1", ())


def dial(path: str, fate: Fate = Fate.PASSED) -> Dial:
    return Dial(at=1.0, client="127.0.0.1:5", method="GET", path=path, fate=fate)


def test_the_first_matching_rule_decides_and_a_path_no_rule_names_passes() -> None:
    book = RuleBook()
    first = book.add(Action.REFUSE, TUNNEL, status=503)
    book.add(Action.RESET, "/api/")
    assert book.decide(head("/api/node/n1/tunnel")) is first
    decided = book.decide(head("/api/node/register"))
    assert decided is not None
    assert decided.action is Action.RESET
    assert book.decide(head("/v1/models")) is None
    assert book.hits(first.id) == 1


def test_a_lifted_rule_decides_no_more_and_an_unknown_one_is_an_error() -> None:
    book = RuleBook()
    rule = book.add(Action.REFUSE, TUNNEL)
    book.decide(head("/api/node/n1/tunnel"))
    assert book.lift(rule.id).hits == 1
    assert book.decide(head("/api/node/n1/tunnel")) is None
    with pytest.raises(KeyError, match="no such rule"):
        book.lift(rule.id)
    with pytest.raises(KeyError, match="no such rule"):
        book.hits(rule.id)


@pytest.mark.parametrize(("pattern", "status"), [("(", 503), ("x", 200), ("x", 700)])
def test_a_rule_that_could_not_work_is_refused_when_it_is_made(pattern: str, status: int) -> None:
    with pytest.raises(ValueError, match=r"pattern=|status="):
        RuleBook().add(Action.REFUSE, pattern, status=status)


def test_every_request_is_counted_once_by_path_and_fate() -> None:
    account = Account()
    for fate in (Fate.PASSED, Fate.PASSED, Fate.REFUSED):
        account.add(dial("/api/node/n1/tunnel", fate))
    account.add(dial("/v1/models"))
    seen = account.seen(TUNNEL)
    assert (seen["passed"], seen["refused"], sum(seen.values())) == (2, 1, 3)
    assert sum(account.seen("").values()) == 4
    assert [told["path"] for told in account.recent("", most=2)] == ["/api/node/n1/tunnel", "/v1/models"]
    assert account.recent("", most=0) == []


def test_the_account_is_bounded_and_counts_on_past_its_bounds() -> None:
    account = Account()
    for number in range(MOST_PATHS + 5):
        account.add(dial(f"/p/{number}"))
    assert sum(account.seen("").values()) == MOST_PATHS + 5
    assert account.seen(OTHER_PATHS.replace("(", r"\(").replace(")", r"\)"))["passed"] == 5
    assert len(account.recent("", most=MOST_PATHS)) == LONGEST_RECORD


@pytest.mark.holds("B-193")
def test_backends_take_turns_and_each_request_may_try_them_all() -> None:
    turns = RoundRobin([("a", 1), ("b", 2), ("c", 3)])
    assert [turns.order()[0][0] for _ in range(4)] == ["a", "b", "c", "a"]
    assert sorted(turns.order()) == [("a", 1), ("b", 2), ("c", 3)]
    turns.replace([("d", 4)])
    assert turns.order() == [("d", 4)]
    turns.replace([])
    assert turns.order() == []
