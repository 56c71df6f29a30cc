"""Waiting for a condition: bounded, watched, counted, and never true for the wrong reason.

| call | holds when | is vacuous when |
|---|---|---|
| `eventually(probe, matcher, within=)` | one look matches in time; gives the value | it never looked |
| `consistently(probe, matcher, during=)` | every look of the window matches | it looked too rarely |
| `never(probe, matcher, during=, control=)` | no look matches, and after `control()` the same probe does | too little was *seen*, or the control shows nothing |

A probe that raises has not matched; its error is kept and told. A wait ends at once when a process it watches
dies. One factor (`--bs-time-factor`, `BLACKSTART_TIME_FACTOR`) scales every budget.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from blackstart.core.deadline import Budget, Pace, seconds
from blackstart.core.matchers import Matcher, matcher_of, probe_of
from blackstart.core.observation import Observation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

_FEWEST_LOOKS = 3


class WaitFailed(AssertionError):
    """A wait that did not hold; `.observation` is its full account."""

    def __init__(self, text: str, observation: Observation) -> None:
        super().__init__(text)
        self.observation = observation


class WaitTimeout(WaitFailed):
    """`eventually` ran out of its budget."""


class WaitBroken(WaitFailed):
    """`consistently` saw something else, or `never` saw what it must not."""


class VacuousWait(WaitFailed):
    """The wait proved nothing: no look, too few, or a control that the probe could not see."""


class NodeDied(WaitFailed):
    """A process the wait depends on died, so waiting on is pointless."""


class Watched(Protocol):
    """A process a wait depends on. Its report comes from `crash_report()` or `describe_death()`."""

    @property
    def alive(self) -> bool:
        """False once the process is dead; never true for a zombie."""


class WaitSink(Protocol):
    """Where finished waits go: the run's journal."""

    def __call__(self, outcome: str, data: dict[str, Any]) -> None:
        """One finished wait."""


@dataclass(frozen=True, kw_only=True)
class Waiter:
    """The rules of waiting over a clock, a sleep, a time factor and a sink for what was seen."""

    factor: float = 1.0
    sink: WaitSink | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        """A factor that is no number of its own would silently make every wait endless or empty."""
        seconds("time factor", self.factor)

    def eventually(
        self,
        probe: Callable[[], T],
        matcher: Callable[[T], bool] | T,
        *,
        within: float,
        watch: Sequence[Watched] = (),
        every: float | None = None,
    ) -> T:
        """The first value that matches; `WaitTimeout` when the budget is used up, `NodeDied` when a watched process dies."""
        wait = _Wait(
            self, "eventually", probe, matcher, budget=seconds("within", within), watch=watch, every=every
        )
        while True:
            last_look = wait.remaining_s <= 0
            value = wait.look()
            if wait.seen.last_matched:
                wait.close("held")
                return value  # type: ignore[no-any-return]  # the probe's own type; look() is untyped for errors
            wait.stop_if_one_died()
            if last_look:
                raise wait.end(WaitTimeout, f"not seen within {wait.budget}")
            wait.pause()

    def consistently(
        self,
        probe: Callable[[], T],
        matcher: Callable[[T], bool] | T,
        *,
        during: float,
        watch: Sequence[Watched] = (),
        every: float | None = None,
    ) -> None:
        """Every look of the window matches, and there were enough of them, spread over the window."""
        wait = _Wait(
            self, "consistently", probe, matcher, budget=seconds("during", during), watch=watch, every=every
        )
        while True:
            last_look = wait.remaining_s <= 0
            wait.look()
            if not wait.seen.last_matched:
                wait.stop_if_one_died()
                raise wait.end(WaitBroken, f"stopped holding after {wait.elapsed_s:.3g} s")
            wait.stop_if_one_died()
            if last_look:
                break
            wait.pause()
        wait.demand_enough_looks()
        wait.close("held")

    def never(
        self,
        probe: Callable[[], T],
        matcher: Callable[[T], bool] | T,
        *,
        during: float,
        control: Callable[[], object],
        watch: Sequence[Watched] = (),
        every: float | None = None,
    ) -> T:
        """No look of the window matches; then `control()` is done and the same probe must match in an equal window.

        Gives the value the control brought. A window in which the probe only raised has seen nothing.
        """
        if not callable(control):
            raise TypeError(
                f"control={control!r}: a never needs something done after the window that the probe must see;"
                " try: control=lambda: worker.kill()"
            )
        wait = _Wait(
            self, "never", probe, matcher, budget=seconds("during", during), watch=watch, every=every
        )
        while True:
            last_look = wait.remaining_s <= 0
            wait.look()
            if wait.seen.last_matched:
                raise wait.end(WaitBroken, f"seen after {wait.elapsed_s:.3g} s, though it never may be")
            wait.stop_if_one_died()
            if last_look:
                break
            wait.pause()
        wait.demand_enough_looks()
        wait.settle()
        return self._control(wait, probe, matcher, control=control, every=every)

    def _control(
        self,
        wait: _Wait,
        probe: Callable[[], T],
        matcher: Callable[[T], bool] | T,
        *,
        control: Callable[[], object],
        every: float | None,
    ) -> T:
        name = matcher_of(control).text
        try:
            control()
        except Exception as error:
            raise wait.end(
                VacuousWait, f"its control {name} raised {type(error).__name__}: {error}"
            ) from error
        check = _Wait(self, "control", probe, matcher, budget=wait.budget.declared_s, watch=(), every=every)
        while True:
            last_look = check.remaining_s <= 0
            value = check.look()
            if check.seen.last_matched:
                check.close("held")
                wait.close("held")
                return value  # type: ignore[no-any-return]  # see eventually
            if last_look:
                check.close("failed")
                raise wait.end(
                    VacuousWait,
                    f"after its control {name} the probe still sees nothing: never proved nothing",
                )
            check.pause()


class _Wait:
    """One running wait: the account, its clock and the processes it depends on."""

    def __init__(
        self,
        waiter: Waiter,
        kind: str,
        probe: Callable[[], Any],
        matcher: object,
        *,
        budget: float,
        watch: Sequence[Watched],
        every: float | None,
    ) -> None:
        self._waiter = waiter
        self._probe = probe_of(probe)
        self._matcher: Matcher = matcher_of(matcher)
        self._watch = tuple(watch)
        self.budget = Budget(declared_s=budget, factor=waiter.factor)
        scaled_s = None if every is None else seconds("every", every) * waiter.factor
        self._pace = Pace(budget_s=self.budget.total_s, every_s=scaled_s)
        self.seen = Observation(
            kind=kind, what=matcher_of(probe).text, awaited=self._matcher.text, budget=self.budget
        )
        self._settled = False
        self._started_s = waiter.clock()

    @property
    def elapsed_s(self) -> float:
        return self._waiter.clock() - self._started_s

    @property
    def remaining_s(self) -> float:
        return self.budget.total_s - self.elapsed_s

    def look(self) -> Any:
        """One look; an error of the probe is kept and is never a match."""
        try:
            value = self._probe()
        except Exception as error:  # noqa: BLE001 - whatever a probe raises is what it saw: told, never a match
            self.seen.failed(error, at_s=self.elapsed_s)
            return None
        self.seen.saw(value, matched=self._matcher(value), at_s=self.elapsed_s)
        return value

    def pause(self) -> None:
        self._waiter.sleep(self._pace.next_s(remaining_s=self.remaining_s))

    def stop_if_one_died(self) -> None:
        for process in self._watch:
            if not process.alive:
                raise self.end(NodeDied, f"a process it depends on died: {_death_of(process)}")

    def demand_enough_looks(self) -> None:
        """Too few looks, or none in half of the window, would be an assertion that was never evaluated."""
        if self.seen.seen < _FEWEST_LOOKS:
            raise self.end(
                VacuousWait, f"saw only {self.seen.seen} values in {self.budget}, {_FEWEST_LOOKS} are needed"
            )
        if self.seen.widest_gap_s > self.budget.total_s / 2:
            raise self.end(VacuousWait, f"did not look for {self.seen.widest_gap_s:.3g} s of {self.budget}")

    def settle(self) -> None:
        """The window is over: what a control takes afterwards is not the window's time."""
        if not self._settled:
            self._settled = True
            self.seen.finish(at_s=self.elapsed_s)

    def close(self, outcome: str) -> None:
        """The wait is over: its account goes to the journal."""
        self.settle()
        if self._waiter.sink is not None:
            self._waiter.sink(outcome, self.seen.data())

    def end(self, kind: type[WaitFailed], verdict: str) -> WaitFailed:
        self.close("vacuous" if kind is VacuousWait else "failed")
        states = ", ".join(_state_of(process) for process in self._watch)
        return kind(self.seen.text(verdict, processes=states), self.seen)


def eventually(
    probe: Callable[[], T],
    matcher: Callable[[T], bool] | T,
    *,
    within: float,
    watch: Sequence[Watched] = (),
    every: float | None = None,
) -> T:
    """See `Waiter.eventually`; the factor and the journal are the running spec's."""
    return current().eventually(probe, matcher, within=within, watch=watch, every=every)


def consistently(
    probe: Callable[[], T],
    matcher: Callable[[T], bool] | T,
    *,
    during: float,
    watch: Sequence[Watched] = (),
    every: float | None = None,
) -> None:
    """See `Waiter.consistently`; the factor and the journal are the running spec's."""
    current().consistently(probe, matcher, during=during, watch=watch, every=every)


def never(
    probe: Callable[[], T],
    matcher: Callable[[T], bool] | T,
    *,
    during: float,
    control: Callable[[], object],
    watch: Sequence[Watched] = (),
    every: float | None = None,
) -> T:
    """See `Waiter.never`; the factor and the journal are the running spec's."""
    return current().never(probe, matcher, during=during, control=control, watch=watch, every=every)


_installed: list[Waiter] = []


def current() -> Waiter:
    """The waiter in force: what a front installed, or one that reads `BLACKSTART_TIME_FACTOR`."""
    return (
        _installed[-1] if _installed else Waiter(factor=time_factor(os.environ.get("BLACKSTART_TIME_FACTOR")))
    )


@contextmanager
def installed(waiter: Waiter) -> Iterator[Waiter]:
    """Puts a waiter in force for a while, in every thread."""
    _installed.append(waiter)
    try:
        yield waiter
    finally:
        _installed.remove(waiter)


def time_factor(text: str | None, *, name: str = "BLACKSTART_TIME_FACTOR") -> float:
    """The factor a setting or an option names; empty is 1; anything that is no number above 0 is a `ValueError`."""
    if not text:
        return 1.0
    try:
        return seconds(name, float(text))
    except ValueError:
        raise ValueError(f"{name}={text}: not a number above 0; try: {name}=2") from None


def _death_of(process: Watched) -> str:
    for name in ("crash_report", "describe_death"):
        describe = getattr(process, name, None)
        if describe is not None:
            return str(describe() if callable(describe) else describe)
    return repr(process)


def _state_of(process: Watched) -> str:
    name = getattr(process, "node", None) or getattr(process, "name", None) or repr(process)
    pid = getattr(process, "pid", None)
    return f"{name} {'alive' if process.alive else 'dead'}{'' if pid is None else f' (pid {pid})'}"
