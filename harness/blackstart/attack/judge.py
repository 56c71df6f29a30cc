"""The judge: red is only red when the named spec's own assertion noticed the mutant, and everything else is said by name.

| what happened | verdict |
|---|---|
| the named spec's own assertion failed in its call, with the text | `RED` |
| the named spec passed | `GREEN` |
| the mutant does not compile or import | `BROKEN` |
| nothing was collected, set-up failed, it was skipped, it timed out | `BROKEN` |
| it failed by an error, by an assertion inside the mutated code, or without the text | `BROKEN` |
| some process ran code that was not the scratch copy's | `BROKEN` |
| the spec was not green before the row was applied | `BROKEN` |
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blackstart.attack.table import Mutation

_OWN = frozenset({"AssertionError", "Failed"})
_ASSERTS_FOR_SPECS = frozenset({"WaitFailed", "Failed"})


class Verdict(StrEnum):
    """What a row came to."""

    RED = "RED"
    GREEN = "GREEN"
    BROKEN = "BROKEN"


@dataclass(frozen=True)
class Result:
    """A judged row; `reason` says why it is not red, or where it was seen."""

    row: Mutation
    verdict: Verdict
    reason: str
    seconds: float = 0.0

    def data(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "row": self.row.name,
            "spec": self.row.spec,
            "verdict": str(self.verdict),
            "reason": self.reason,
            "seconds": round(self.seconds, 2),
        }


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What one pytest process in the scratch copy wrote down."""

    facts: Sequence[dict[str, Any]]
    witnesses: Sequence[dict[str, Any]]
    timed_out: bool = False
    exit_code: int | None = None
    output: str = ""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """All facts of one kind."""
        return [fact for fact in self.facts if fact["fact"] == kind]

    def phases(self, spec: str) -> list[dict[str, Any]]:
        """The phases of the named spec, of every parameter set it has."""
        return [fact for fact in self.of("phase") if belongs(fact["nodeid"], spec)]


def belongs(nodeid: str, spec: str) -> bool:
    """Whether a collected item is the named spec or one of its parameter sets."""
    return nodeid == spec or nodeid.startswith(f"{spec}[")


def not_green(trial: Trial, spec: str, *, scratch: str) -> str | None:
    """Why the spec does not count as seen green in the untouched scratch copy; `None` when it was."""
    if stray := _stray(trial, spec, scratch=scratch):
        return stray
    phases = trial.phases(spec)
    for phase in phases:
        if phase["outcome"] != "passed":
            return f"not green before the change: {phase['when']} {phase['outcome']}: {_last_line(phase['text'])}"
    if not any(phase["when"] == "call" for phase in phases):
        return f"not green before the change: {_never_ran(trial)}"
    return None


def judge(row: Mutation, trial: Trial, *, scratch: str, mutated: Iterable[str]) -> Result:
    """One row, from what its one pytest process wrote down. `mutated` are the folders of the code under attack."""
    verdict, reason = _judged(row, trial, scratch=scratch, mutated=tuple(mutated))
    return Result(row, verdict, reason, sum(fact.get("seconds", 0.0) for fact in trial.of("phase")))


def _judged(row: Mutation, trial: Trial, *, scratch: str, mutated: tuple[str, ...]) -> tuple[Verdict, str]:
    if unfit := _unfit(row, trial, scratch=scratch):
        return Verdict.BROKEN, unfit
    failed = [phase for phase in trial.phases(row.spec) if phase["outcome"] == "failed"]
    calls = [phase for phase in failed if phase["when"] == "call"]
    if not failed:
        return Verdict.GREEN, "the spec passes on the mutant: nothing holds this guard"
    if not calls:
        return (
            Verdict.BROKEN,
            f"failed in {failed[0]['when']}, not by its assertion: {_last_line(failed[0]['text'])}",
        )
    by_own = [phase for phase in calls if _is_own_assertion(phase, mutated)]
    if not by_own:
        return Verdict.BROKEN, f"failed by an error, not by its own assertion: {_last_line(calls[0]['text'])}"
    if not any(row.text in phase["text"] for phase in by_own):
        return Verdict.BROKEN, f"its failure does not carry {row.text!r}: {_last_line(by_own[0]['text'])}"
    return Verdict.RED, "its own assertion noticed"


def _unfit(row: Mutation, trial: Trial, *, scratch: str) -> str | None:
    """Why this trial says nothing about the row."""
    if imports := trial.of("import"):
        return f"the mutant does not import: {_last_line(imports[0]['error'])}"
    if stray := _stray(trial, row.spec, scratch=scratch):
        return stray
    if trial.timed_out:
        return "timed out"
    return _no_call(trial, trial.phases(row.spec))


def _no_call(trial: Trial, phases: Sequence[dict[str, Any]]) -> str | None:
    """Why the spec's own call was never judged, if it was not."""
    for phase in phases:
        if phase["outcome"] == "skipped":
            return f"skipped: {_last_line(phase['text'])}"
    if not any(phase["when"] == "call" for phase in phases):
        failed = [phase for phase in phases if phase["outcome"] == "failed"]
        return f"set-up failed: {_last_line(failed[0]['text'])}" if failed else _never_ran(trial)
    return None if trial.of("end") else "pytest did not come to its end"


def _never_ran(trial: Trial) -> str:
    if collects := trial.of("collect"):
        return f"does not collect: {_last_line(collects[0]['text'])}"
    if trial.timed_out:
        return "timed out"
    return f"the spec did not run (pytest exit {trial.exit_code}): {_last_line(trial.output)}"


def _stray(trial: Trial, spec: str, *, scratch: str) -> str | None:
    """A process of this spec that ran other code than the scratch copy's, if there was one."""
    for fact in trial.witnesses:
        if fact["spec"] and not belongs(fact["spec"], spec):
            continue
        if fact["fact"] == "package" and not _within(fact["origin"], scratch):
            return (
                f"process {fact['pid']} ran {fact['name']} from {fact['origin']}, not from the scratch copy"
            )
        if fact["fact"] == "stray":
            return f"a child was started without the scratch copy on its path: {' '.join(fact['argv'])}"
    for fact in trial.of("end"):
        for name, origin in fact["modules"].items():
            if not _within(origin, scratch):
                return f"pytest ran {name} from {origin}, not from the scratch copy"
    return None


def _within(origin: str | None, scratch: str) -> bool:
    return origin is not None and origin.startswith(f"{scratch}/")


def _is_own_assertion(phase: dict[str, Any], mutated: tuple[str, ...]) -> bool:
    """An assertion of the spec: not one that the attacked code made about itself, except where it waits for the spec."""
    for raised in phase["raised"]:
        types = set(raised["types"])
        if not types & _OWN:
            continue
        if types & _ASSERTS_FOR_SPECS or not any(_within(raised["file"], folder) for folder in mutated):
            return True
    return False


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("E ")]
    return (errors or lines or ["no output"])[-1 if not errors else 0][:300]
