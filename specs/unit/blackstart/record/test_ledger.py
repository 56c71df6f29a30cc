"""The ledger says what is still owed, whoever died in the middle of saying so."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from blackstart.record import ChargeKind, Identity, Ledger, State, read_ledger
from blackstart.record.ledger import is_over, owed

if TYPE_CHECKING:
    from pathlib import Path

ME = Identity(4711, 99)
WRITES_MANY = """
import pathlib, sys
from blackstart.record import ChargeKind, Ledger
with Ledger(pathlib.Path(sys.argv[1])) as ledger:
    for number in range(100):
        ledger.intend(ChargeKind.UNDO, user=number, argv=["x" * 500])
"""


def test_an_intent_is_on_file_before_the_act_and_owed_until_it_ended(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        charge = ledger.intend(ChargeKind.PROCESS, user=7, node="w.1")
        assert [one.state for one in owed(read_ledger(tmp_path))] == [State.INTEND]
        ledger.began(charge, ME)
        assert read_ledger(tmp_path)[charge.id].identity == ME
        assert owed(read_ledger(tmp_path), user=8) == []
        assert [one.id for one in owed(read_ledger(tmp_path), user=7)] == [charge.id]
        ledger.ended(charge, reason="killed")
    assert owed(read_ledger(tmp_path)) == []
    assert read_ledger(tmp_path)[charge.id].reason == "killed"


def test_users_and_guardians_are_recorded_but_nothing_is_owed_for_them(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.began(ledger.intend(ChargeKind.USER, user=7), ME)
        ledger.began(ledger.intend(ChargeKind.GUARDIAN, user=None), ME)
    assert len(read_ledger(tmp_path)) == 2
    assert owed(read_ledger(tmp_path)) == []


def test_what_has_ended_does_not_begin_again(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        charge = ledger.intend(ChargeKind.PROCESS, user=7)
        ledger.ended(charge)
        ledger.began(charge, ME)
    assert read_ledger(tmp_path)[charge.id].state is State.ENDED


def test_writers_of_several_processes_never_mix_their_lines(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITES_MANY, tmp_path]) for _ in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(read_ledger(tmp_path)) == 300


def test_a_torn_last_line_is_not_yet_a_step(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        charge = ledger.intend(ChargeKind.PROCESS, user=7)
        ledger.ended(charge)
    ledger.path.write_bytes(ledger.path.read_bytes()[:-4])
    assert [one.id for one in owed(read_ledger(tmp_path))] == [charge.id]


def test_a_ledger_that_is_not_there_owes_nothing(tmp_path: Path) -> None:
    assert read_ledger(tmp_path) == {}


def test_a_charge_too_long_for_one_append_is_refused(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger, pytest.raises(ValueError, match="a shorter argv"):
        ledger.intend(ChargeKind.UNDO, user=None, argv=["x" * 100_000])
    assert read_ledger(tmp_path) == {}


def test_a_closed_ledger_says_so(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.close()
    ledger.close()
    with pytest.raises(ValueError, match="is closed"):
        ledger.intend(ChargeKind.UNDO, user=None)


def test_a_run_is_over_once_its_guardian_wrote_itself_off_last(tmp_path: Path) -> None:
    assert not is_over(tmp_path)
    with Ledger(tmp_path) as ledger:
        guardian = ledger.intend(ChargeKind.GUARDIAN, user=None)
        assert not is_over(tmp_path)
        charge = ledger.intend(ChargeKind.UNDO, user=7, argv=["x" * 1000])
        ledger.ended(charge)
        assert not is_over(tmp_path)
        ledger.ended(guardian)
        assert is_over(tmp_path)
        ledger.intend(ChargeKind.UNDO, user=7)
        assert not is_over(tmp_path)
