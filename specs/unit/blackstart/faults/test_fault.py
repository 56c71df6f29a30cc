"""A fault's life, told by a fault that only writes down what is done to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blackstart.core.fault import Evidence, FaultNotConfirmed, FaultNotLifted, Finding
from blackstart.faults import Fault, standing
from blackstart.record import ChargeKind, Journal, Ledger, Run, read_journal, read_ledger

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from blackstart.faults import Standing

CONFIRMED = Evidence(Finding.CONFIRMED, "seen")
MISMATCH = Evidence(Finding.MISMATCH, "something else")
INCONCLUSIVE = Evidence(Finding.INCONCLUSIVE, "nobody came")
WITHIN_S = 0.2


class Written(Fault):
    family = "written"

    def __init__(self, run: Run, *, finds: list[Evidence], lifted: Evidence = CONFIRMED) -> None:
        self.steps: list[str] = []
        self.owed_at_inject = 0
        self._run = run
        self._finds = finds
        self._lifted = lifted

    def describe(self) -> str:
        return "written down"

    def setup(self) -> None:
        self.steps.append("setup")

    def undo(self) -> tuple[str, ...]:
        return ("true", "undo")

    def inject(self) -> None:
        self.owed_at_inject = len(owed(self._run))
        self.steps.append("inject")

    def confirm(self) -> Evidence:
        self.steps.append("confirm")
        return self._finds.pop(0) if len(self._finds) > 1 else self._finds[0]

    def lift(self) -> None:
        self.steps.append("lift")

    def confirm_lifted(self) -> Evidence:
        self.steps.append("confirm lifted")
        return self._lifted

    def cleanup(self) -> None:
        self.steps.append("cleanup")


class Stage:
    def __init__(self, run: Run, journal: Journal, ledger: Ledger) -> None:
        self.run, self.journal, self.ledger = run, journal, ledger

    def standing(self, fault: Fault, *, late: bool = False) -> AbstractContextManager[Standing]:
        return standing(
            fault, journal=self.journal, ledger=self.ledger, user=None, within_s=WITHIN_S, spec="s", late=late
        )


def owed(run: Run) -> list[tuple[str, ...]]:
    charges = read_ledger(run.dir).values()
    return [charge.argv for charge in charges if charge.kind is ChargeKind.UNDO and charge.owed]


@pytest.fixture
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    run = Run.create(tmp_path_factory.mktemp("run"), argv=["spec"])
    with Journal(run, writer="spec") as journal, Ledger(run.dir) as ledger:
        yield Stage(run, journal, ledger)


def test_a_faults_life_has_its_steps_in_order_and_each_is_in_the_journal(stage: Stage) -> None:
    fault = Written(stage.run, finds=[CONFIRMED])
    with stage.standing(fault) as stands:
        assert fault.steps == ["setup", "inject", "confirm"]
        assert stands.evidence == CONFIRMED
    assert fault.steps[3:] == ["lift", "confirm lifted", "cleanup"]
    told = [event.data for event in read_journal(stage.run.dir) if event.kind == "fault"]
    assert [event["step"] for event in told] == ["inject", "confirm", "lift"]
    assert told[1]["finding"] == "confirmed"


def test_the_undo_is_in_the_ledger_before_the_fault_and_settled_after_it(stage: Stage) -> None:
    fault = Written(stage.run, finds=[CONFIRMED])
    with stage.standing(fault):
        assert fault.owed_at_inject == 1, "the fault was in before its undo was on file"
        assert owed(stage.run) == [("true", "undo")]
    assert owed(stage.run) == []


@pytest.mark.parametrize("evidence", [MISMATCH, INCONCLUSIVE])
def test_a_fault_that_is_not_seen_lets_no_block_pass_and_is_taken_out_all_the_same(
    stage: Stage, evidence: Evidence
) -> None:
    fault = Written(stage.run, finds=[evidence])
    with pytest.raises(FaultNotConfirmed, match=evidence.seen), stage.standing(fault):
        raise AssertionError("the block ran under a fault nobody had seen")
    assert fault.steps[-3:] == ["lift", "confirm lifted", "cleanup"]
    assert fault.steps.count("confirm") > 1, "it looked only once"


def test_a_late_fault_is_looked_for_at_the_end_of_the_block(stage: Stage) -> None:
    fault = Written(stage.run, finds=[CONFIRMED])
    with stage.standing(fault, late=True):
        assert "confirm" not in fault.steps
    assert "confirm" in fault.steps
    unseen = Written(stage.run, finds=[INCONCLUSIVE])
    with pytest.raises(FaultNotConfirmed, match="nobody came"), stage.standing(unseen, late=True):
        pass
    assert unseen.steps[-1] == "cleanup"


def test_a_fault_seen_only_after_some_looks_is_confirmed(stage: Stage) -> None:
    fault = Written(stage.run, finds=[MISMATCH, INCONCLUSIVE, CONFIRMED])
    with stage.standing(fault) as stands:
        assert stands.confirm() == CONFIRMED
    assert fault.steps.count("confirm") == 3, "a confirmed fault was looked for again"


def test_a_failure_of_the_block_stands_with_a_note_that_the_fault_was_not_seen(stage: Stage) -> None:
    fault = Written(stage.run, finds=[INCONCLUSIVE], lifted=MISMATCH)
    with pytest.raises(AssertionError, match="the product's") as caught, stage.standing(fault, late=True):
        raise AssertionError("the product's")
    notes = "\n".join(caught.value.__notes__)
    assert "the fault was not confirmed: written down" in notes
    assert "the fault was not taken out: written down: mismatch" in notes
    assert fault.steps[-1] == "cleanup"


def test_a_fault_that_stays_is_an_error_and_its_undo_stays_owed(stage: Stage) -> None:
    fault = Written(stage.run, finds=[CONFIRMED], lifted=MISMATCH)
    with pytest.raises(FaultNotLifted, match="something else"), stage.standing(fault):
        pass
    assert owed(stage.run) == [("true", "undo")]


def test_nothing_to_show_that_it_is_gone_is_no_error(stage: Stage) -> None:
    with stage.standing(Written(stage.run, finds=[CONFIRMED], lifted=INCONCLUSIVE)):
        pass
    assert owed(stage.run) == []
