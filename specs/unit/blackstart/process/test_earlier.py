"""A new run ends what an unguarded one left, by identity, and leaves alone whoever still lives."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.process import earlier as earlier_module
from blackstart.process import sweep_earlier
from blackstart.process.ending import Ended
from blackstart.record import ChargeKind, Identity, Ledger, Run, State, identity_of, read_ledger
from blackstart.record.ledger import owed

from .players import FAMILIES, Player, marked, new_mark

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from blackstart.process.strays import Sought
    from blackstart.record.ledger import Charge

WITHIN_S = 10.0


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: identity_of(pid), None, within=WITHIN_S)


@pytest.mark.holds("H-11")
def test_what_a_run_without_guardian_left_is_ended_by_the_next_run(tmp_path: Path) -> None:
    mark = new_mark()
    with Player.start("owner", tmp_path, mark) as owner:
        kill(owner.guardian)
        owner.kill()
        assert len(marked(mark)) == FAMILIES  # control: nobody else ends them
        new = Run.create(tmp_path, argv=["pytest"])
        (swept,) = sweep_earlier(tmp_path, but=new.id)
        assert marked(mark) == []
        assert str(swept).startswith(f"{owner.run_dir}: its guardian was killed; ended ")
        assert owed(read_ledger(owner.run_dir)) == []
        assert sweep_earlier(tmp_path, but=new.id) == []


def test_a_run_whose_guardian_lives_is_not_touched(tmp_path: Path) -> None:
    mark = new_mark()
    with Player.start("owner", tmp_path, mark):
        assert sweep_earlier(tmp_path) == []
        assert len(marked(mark)) == FAMILIES


def test_a_run_whose_users_live_is_named_and_left_alone(tmp_path: Path) -> None:
    mark = new_mark()
    with Player.start("owner", tmp_path, mark) as owner:
        kill(owner.guardian)
        (swept,) = sweep_earlier(tmp_path)
        assert str(swept).endswith("its guardian is dead but its users are not; left alone")
        assert len(marked(mark)) == FAMILIES
        owner.kill()
        sweep_earlier(tmp_path)
        assert marked(mark) == []


def test_pids_of_another_boot_are_nobodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = new_mark()
    with Player.start("owner", tmp_path, mark) as owner:
        kill(owner.guardian)
        owner.kill()
        monkeypatch.setattr(earlier_module, "boot_id", lambda: "another boot")
        seen: list[Sequence[Charge]] = []

        def looks_only(due: Sequence[Charge], *, sweep: Sought) -> Ended:
            assert sweep.run == owner.facts["run"]
            seen.append(due)
            return Ended(found=0)

        ledger = owner.run_dir / "ledger.jsonl"
        before = ledger.read_text()
        monkeypatch.setattr(earlier_module, "end_charges", looks_only)
        sweep_earlier(tmp_path)
        assert seen == [[]], "identities of another boot were signalled"
        monkeypatch.undo()
        ledger.write_text(before)
        sweep_earlier(tmp_path)  # control: the same ledger on this boot
        assert marked(mark) == []


def test_a_run_that_is_just_starting_is_not_touched(tmp_path: Path) -> None:
    run = Run.create(tmp_path, argv=["pytest"])
    with Ledger(run.dir) as ledger:
        starting = ledger.intend(ChargeKind.GUARDIAN, user=None)
        assert sweep_earlier(tmp_path) == []
        assert read_ledger(run.dir)[starting.id].state is State.INTEND, (
            "a guardian was written off before it began"
        )
        ledger.began(starting, Identity(os.getpid(), 1))  # control: one that began and is dead
        assert len(sweep_earlier(tmp_path)) == 1
