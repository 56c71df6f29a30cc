"""Waiting on a clock that only moves when a wait sleeps: exact, and done in no time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.cluster import waiting
from blackstart.cluster.waiting import NodeDied, VacuousWait, WaitBroken, Waiter, WaitTimeout
from blackstart.core.matchers import is_not, present_and_empty
from blackstart.core.observation import UNSEEN, Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WINDOW_S = 10.0


@dataclass
class FakeTime:
    """A clock that a sleep moves, and a script of things that happen at given moments."""

    now_s: float = 1000.0
    slept: list[float] = field(default_factory=list)
    waits: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def sleep(self, pause_s: float) -> None:
        self.slept.append(pause_s)
        self.now_s += pause_s

    def waiter(self, *, factor: float = 1.0) -> Waiter:
        return Waiter(
            factor=factor,
            clock=self.clock,
            sleep=self.sleep,
            sink=lambda outcome, data: self.waits.append((outcome, data)),
        )


@dataclass
class Process:
    """A watched process, as a handle looks."""

    alive: bool = True
    node: str = "frontend-0"
    pid: int = 4711

    def crash_report(self) -> str:
        return "frontend-0 exited with status 3; last line: no such table"


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


def after(time: FakeTime, moment_s: float, value: str, *, before: str = "connected") -> Callable[[], str]:
    """A probe that sees `value` once `moment_s` seconds have passed."""
    start_s = time.now_s
    return lambda: value if time.now_s - start_s >= moment_s else before


def test_eventually_gives_the_value_that_matched_and_journals_how_often_it_looked(time: FakeTime) -> None:
    value = time.waiter().eventually(after(time, 3, "gone"), "gone", within=WINDOW_S)

    assert value == "gone"
    [(outcome, data)] = time.waits
    assert outcome == "held"
    assert data["wait"] == "eventually"
    assert (data["first"], data["last"]) == ("'connected'", "'gone'")
    assert data["looks"] > 3
    assert data["used_percent"] == pytest.approx(30, abs=3)


def test_eventually_fails_at_its_deadline_and_tells_what_it_saw(time: FakeTime) -> None:
    with pytest.raises(WaitTimeout) as caught:
        time.waiter().eventually(after(time, 4, "reconnecting"), "gone", within=WINDOW_S, watch=[Process()])

    text = str(caught.value)
    assert time.now_s == pytest.approx(1000 + WINDOW_S)
    assert "== 'gone'" in text
    assert "'connected' (" in text
    assert "-> 'reconnecting' (" in text
    assert "used 100 %" in text
    assert "frontend-0 alive (pid 4711)" in text
    assert time.waits[0][0] == "failed"


def test_eventually_looks_once_more_when_its_budget_is_used_up(time: FakeTime) -> None:
    assert time.waiter().eventually(after(time, WINDOW_S, "gone"), "gone", within=WINDOW_S) == "gone"


@pytest.mark.holds("B-196")
def test_an_error_of_the_probe_is_never_a_match_and_is_told(time: FakeTime) -> None:
    def refused() -> str:
        raise ConnectionError("401 unauthorized")

    with pytest.raises(WaitTimeout, match="ConnectionError: 401 unauthorized") as caught:
        time.waiter().eventually(refused, is_not("healthy"), within=WINDOW_S)

    assert caught.value.observation.matches == 0
    assert caught.value.observation.seen == 0
    assert "nothing seen" in str(caught.value)


def test_a_wait_stops_at_once_when_a_watched_process_dies(time: FakeTime) -> None:
    process = Process()

    def probe() -> str:
        if time.now_s - 1000 >= 1:
            process.alive = False
        return "connected"

    with pytest.raises(NodeDied, match="no such table") as caught:
        time.waiter().eventually(probe, "gone", within=WINDOW_S, watch=[process])

    assert caught.value.observation.ended_s < 2
    assert "frontend-0 dead" in str(caught.value)


def test_a_window_stops_at_once_when_a_watched_process_dies(time: FakeTime) -> None:
    for wait in (
        lambda: time.waiter().consistently(lambda: 1, 1, during=WINDOW_S, watch=[Process(alive=False)]),
        lambda: time.waiter().never(
            lambda: 1, 2, during=WINDOW_S, control=lambda: None, watch=[Process(alive=False)]
        ),
    ):
        with pytest.raises(NodeDied):
            wait()


def test_consistently_holds_only_when_every_look_of_the_whole_window_matches(time: FakeTime) -> None:
    time.waiter().consistently(lambda: "healthy", "healthy", during=WINDOW_S)
    assert time.now_s == pytest.approx(1000 + WINDOW_S)
    assert time.waits[-1][1]["matches"] == time.waits[-1][1]["looks"] >= 40

    with pytest.raises(WaitBroken, match="stopped holding after"):
        time.waiter().consistently(after(time, 9, "gone", before="healthy"), "healthy", during=WINDOW_S)


def test_an_error_breaks_a_consistently(time: FakeTime) -> None:
    answers: Iterator[Any] = iter(["healthy", "healthy"])

    with pytest.raises(WaitBroken, match="StopIteration"):
        time.waiter().consistently(lambda: next(answers), "healthy", during=WINDOW_S)


def test_a_consistently_that_looked_too_rarely_is_vacuous(time: FakeTime) -> None:
    def slow() -> str:
        time.now_s += WINDOW_S
        return "healthy"

    with pytest.raises(VacuousWait, match="saw only 2 values in 10 s"):
        time.waiter().consistently(slow, "healthy", during=WINDOW_S)


def test_a_window_with_a_hole_in_the_middle_is_vacuous(time: FakeTime) -> None:
    """Many looks do not help where the host stood still for most of the window."""
    looks = 0

    def stalled() -> str:
        nonlocal looks
        looks += 1
        if looks == 4:
            time.now_s += WINDOW_S * 0.7
        return "healthy"

    with pytest.raises(VacuousWait, match="did not look for 7"):
        time.waiter().consistently(stalled, "healthy", during=WINDOW_S)


@pytest.mark.holds("B-246")
def test_never_holds_only_when_its_control_makes_the_same_probe_match(time: FakeTime) -> None:
    status = "healthy"

    def kill_the_worker() -> None:
        nonlocal status
        status = "offline"

    assert (
        time.waiter().never(lambda: status, "offline", during=WINDOW_S, control=kill_the_worker) == "offline"
    )
    assert [data["wait"] for _, data in time.waits] == ["control", "never"]


@pytest.mark.holds("B-246")
def test_never_is_vacuous_when_the_control_shows_nothing(time: FakeTime) -> None:
    def poke_nothing() -> None:
        pass

    with pytest.raises(VacuousWait, match="poke_nothing the probe still sees nothing"):
        time.waiter().never(lambda: "frozen", "offline", during=WINDOW_S, control=poke_nothing)


def test_never_is_vacuous_when_the_control_itself_fails(time: FakeTime) -> None:
    def kill_the_worker() -> None:
        raise LookupError("worker-9")

    with pytest.raises(VacuousWait, match=r"kill_the_worker raised LookupError: worker-9"):
        time.waiter().never(lambda: "frozen", "offline", during=WINDOW_S, control=kill_the_worker)


def test_never_is_vacuous_when_the_probe_only_ever_raised(time: FakeTime) -> None:
    """A probe that cannot see would satisfy every never."""
    working = False

    def probe() -> str:
        if not working:
            raise ConnectionError("refused")
        return "offline"

    def control() -> None:
        nonlocal working
        working = True

    with pytest.raises(VacuousWait, match="saw only 0 values"):
        time.waiter().never(probe, "offline", during=WINDOW_S, control=control)


def test_never_fails_the_moment_it_sees_what_must_not_be(time: FakeTime) -> None:
    with pytest.raises(WaitBroken, match="though it never may be"):
        time.waiter().never(after(time, 2, "gone"), "gone", during=WINDOW_S, control=lambda: None)
    assert time.now_s < 1000 + WINDOW_S / 2


def test_never_needs_something_to_do_after_its_window(time: FakeTime) -> None:
    with pytest.raises(TypeError, match="control=None"):
        time.waiter().never(lambda: 1, 2, during=WINDOW_S, control=None)  # type: ignore[arg-type]  # the mistake itself


def test_one_factor_scales_every_budget_and_nothing_else(time: FakeTime) -> None:
    with pytest.raises(WaitTimeout, match=r"30 s \(10 s declared, time factor 3\)"):
        time.waiter(factor=3).eventually(lambda: "x", "y", within=WINDOW_S)
    assert time.now_s == pytest.approx(1000 + 3 * WINDOW_S)


@pytest.mark.holds("B-247")
@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), True, "5"])
def test_numbers_are_judged_before_the_first_look(time: FakeTime, bad: Any) -> None:
    looks: list[int] = []

    def probe() -> int:
        looks.append(1)
        return 1

    for wait in (
        lambda: time.waiter().eventually(probe, 2, within=bad),
        lambda: time.waiter().consistently(probe, 1, during=bad),
        lambda: time.waiter().never(probe, 2, during=bad, control=lambda: None),
        lambda: time.waiter().eventually(probe, 2, within=WINDOW_S, every=bad),
    ):
        with pytest.raises((ValueError, TypeError), match="seconds"):
            wait()
    assert not looks


@pytest.mark.holds("B-247")
def test_an_interval_that_outlasts_its_window_is_refused(time: FakeTime) -> None:
    """It would look once, at the start, before the system could react."""
    with pytest.raises(ValueError, match="looks once in a budget"):
        time.waiter().never(lambda: 1, 2, during=WINDOW_S, every=WINDOW_S, control=lambda: None)


@pytest.mark.holds("B-188")
def test_a_probe_that_takes_an_index_is_refused_with_the_closure_to_write(time: FakeTime) -> None:
    class Fleet:
        def presence(self, worker: int) -> str:
            return f"connected-{worker}"

    fleet = Fleet()
    with pytest.raises(TypeError, match=r"try: lambda: .*Fleet\.presence\(\.\.\.\)"):
        time.waiter().eventually(fleet.presence, "connected-1", within=WINDOW_S)  # type: ignore[arg-type]  # the mistake itself

    assert (
        time.waiter().eventually(lambda: fleet.presence(1), "connected-1", within=WINDOW_S) == "connected-1"
    )


def test_a_value_in_place_of_a_probe_is_refused(time: FakeTime) -> None:
    with pytest.raises(TypeError, match="already a value"):
        time.waiter().eventually("connected", "gone", within=WINDOW_S)  # type: ignore[arg-type]  # the mistake itself


def test_looks_start_close_together_and_never_grow_far_apart(time: FakeTime) -> None:
    with pytest.raises(WaitTimeout):
        time.waiter().eventually(lambda: 1, 2, within=WINDOW_S * 100)

    assert time.slept[0] < 0.01
    assert max(time.slept) <= 0.25
    assert time.slept[:4] == sorted(time.slept[:4])


@pytest.mark.holds("B-197")
def test_a_key_that_is_absent_is_not_empty(time: FakeTime) -> None:
    matcher = present_and_empty("address", "http_address")

    roster = {"address": "", "http_address": ""}
    assert time.waiter().eventually(lambda: roster, matcher, within=WINDOW_S) == roster
    with pytest.raises(WaitTimeout, match="has address, http_address present and empty"):
        time.waiter().eventually(lambda: {"address": "", "httpAddress": ""}, matcher, within=WINDOW_S)


@pytest.mark.holds("B-196", "B-198")
def test_a_probe_keeps_its_last_answer_and_its_last_error_and_an_error_equals_no_answer() -> None:
    answers: Iterator[Any] = iter(["healthy"])
    probe = Probe(lambda: next(answers), name="status of worker-0")

    assert probe.report() == "status of worker-0: nothing was ever seen, no error since"
    assert probe.sample() == "healthy"
    assert probe.sample() is UNSEEN
    assert probe.sample() not in {"healthy", "offline", "", None}
    assert "last seen 'healthy'" in probe.report()
    assert "then StopIteration" in probe.report()


def test_the_wait_in_force_is_the_one_a_front_installed(
    time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    with waiting.installed(time.waiter()):
        assert waiting.eventually(after(time, 1, "gone"), "gone", within=WINDOW_S) == "gone"
        waiting.consistently(lambda: 1, 1, during=WINDOW_S)
        with pytest.raises(VacuousWait):
            waiting.never(lambda: 1, 2, during=WINDOW_S, control=lambda: None)
    assert [data["wait"] for _, data in time.waits] == ["eventually", "consistently", "control", "never"]

    monkeypatch.setattr(waiting, "_installed", [])
    monkeypatch.setenv("BLACKSTART_TIME_FACTOR", "2.5")
    assert waiting.current().factor == 2.5


@pytest.mark.parametrize("text", ["0", "-1", "nan", "fast", "inf"])
def test_a_time_factor_that_is_no_number_above_zero_names_itself(text: str) -> None:
    with pytest.raises(ValueError, match=f"BLACKSTART_TIME_FACTOR={text}: not a number above 0"):
        waiting.time_factor(text)
