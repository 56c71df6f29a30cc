"""The attack on a real small project: real scratch copies, real pytest processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from blackstart.attack import Result, Verdict, attack
from blackstart.cluster.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """
[[mutation]]
name = "held-is-always-true"
file = "src/pkg/guard.py"
find = '''owner != ""'''
replace = '''True'''
spec = "specs/test_guard.py::{spec}"
text = "an empty owner holds nothing"
"""
SOON = 30.0


def verdicts(results: list[Result]) -> dict[str, tuple[Verdict, str]]:
    return {result.row.name: (result.verdict, result.reason) for result in results}


@pytest.mark.holds("B-250")
def test_a_row_is_red_only_when_the_named_specs_own_assertion_notices(project: Path, row: Any) -> None:
    """Every other ending of the same spec is broken, and a spec that does not notice is green."""
    rows = [
        row("noticed", spec="test_nobody_holds_it"),
        row("noticed-in-a-child", spec="test_a_child_says_the_same"),
        row("not-noticed", spec="test_somebody_holds_it"),
        row("no-syntax", replace="owner !=", spec="test_nobody_holds_it"),
        row("no-import", replace='owner != ""\nimport nothing_like_it', spec="test_nobody_holds_it"),
        row("an-error", replace="owner.nothing_like_it", spec="test_nobody_holds_it"),
        row("its-own-assertion", replace="_no()\n\ndef _no(): assert False", spec="test_nobody_holds_it"),
        row("never-green", spec="test_was_never_green"),
    ]
    told = verdicts(attack(rows, root=project, jobs=2))
    assert {name: verdict for name, (verdict, _) in told.items()} == {
        "noticed": Verdict.RED,
        "noticed-in-a-child": Verdict.RED,
        "not-noticed": Verdict.GREEN,
        "no-syntax": Verdict.BROKEN,
        "no-import": Verdict.BROKEN,
        "an-error": Verdict.BROKEN,
        "its-own-assertion": Verdict.BROKEN,
        "never-green": Verdict.BROKEN,
    }
    assert "does not compile" in told["no-syntax"][1]
    assert "does not import: ModuleNotFoundError" in told["no-import"][1]
    assert "AttributeError" in told["an-error"][1]
    assert "not green before the change" in told["never-green"][1]
    assert not (project / ".attack").exists(), "nothing is left behind"
    assert 'owner != ""' in (project / "src/pkg/guard.py").read_text(), "the tree itself is never touched"


def test_a_spec_that_is_not_there_breaks_its_own_row_and_no_other(project: Path, row: Any) -> None:
    rows = [row("not-there", spec="test_that_nobody_wrote"), row("noticed", spec="test_nobody_holds_it")]
    told = verdicts(attack(rows, root=project, jobs=1))
    assert told["noticed"][0] is Verdict.RED
    assert told["not-there"][0] is Verdict.BROKEN


@pytest.mark.holds("B-250")
def test_a_child_that_ran_the_tree_itself_makes_a_row_broken(project: Path, row: Any) -> None:
    [result] = attack([row("elsewhere", spec="test_a_child_elsewhere_says_the_same")], root=project, jobs=1)
    assert result.verdict is Verdict.BROKEN
    assert "without the scratch copy on its path" in result.reason


def command(project: Path, *arguments: str) -> subprocess.Popen[str]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.Popen(
        [sys.executable, "-m", "blackstart", "attack", *arguments],
        cwd=project,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def table(project: Path, *, spec: str) -> None:
    (project / "specs" / "mutations").mkdir()
    (project / "specs" / "mutations" / "guard.toml").write_text(TABLE.format(spec=spec))


def test_the_command_prints_a_line_a_row_and_exits_by_what_was_found(project: Path) -> None:
    table(project, spec="test_nobody_holds_it")
    out, err = command(project).communicate(timeout=SOON * 2)
    assert out.splitlines() == [
        "RED held-is-always-true specs/test_guard.py::test_nobody_holds_it",
        "attack: 1 rows, 1 red, 0 green, 0 broken",
    ]
    assert err == ""

    listed = command(project, "--list")
    assert listed.communicate(timeout=SOON)[0] == "held-is-always-true\n"
    assert listed.returncode == 0

    for arguments, told in (
        (("--row", "nope"), "--row=nope: no such row"),
        (("--table", "nowhere"), "--table=nowhere: not a folder"),
    ):
        wrong = command(project, *arguments)
        assert told in wrong.communicate(timeout=SOON)[1]
        assert wrong.returncode == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_attack_leaves_no_process_and_no_file(project: Path, number: signal.Signals) -> None:
    with (project / "specs" / "test_guard.py").open("a") as file:
        file.write("\nimport time\ndef test_takes_long():\n    time.sleep(600)\n")
    table(project, spec="test_takes_long")
    attacking = command(project)
    descendants = psutil.Process(attacking.pid).children
    eventually(
        lambda: any("pytest" in child.cmdline() for child in descendants(recursive=True)), True, within=SOON
    )
    running = descendants(recursive=True)

    attacking.send_signal(number)
    attacking.communicate(timeout=SOON)

    assert attacking.returncode == 130
    assert not (project / ".attack").exists()
    eventually(lambda: [child for child in running if child.is_running()], [], within=SOON)
