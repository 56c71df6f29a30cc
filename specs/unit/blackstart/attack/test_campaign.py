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
from blackstart.attack.campaign import in_order
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
SOON = 120.0


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


def table(project: Path, *, spec: str, rows: int = 1) -> None:
    (project / "specs" / "mutations").mkdir()
    text = "".join(
        TABLE.format(spec=spec).replace("always-true", f"always-true-{number}" if number else "always-true")
        for number in range(rows)
    )
    (project / "specs" / "mutations" / "guard.toml").write_text(text)


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


def test_what_is_not_red_is_told_with_its_reason_when_it_is_known_and_once_more_at_the_end(
    project: Path,
) -> None:
    table(project, spec="test_was_never_green", rows=2)
    broken = command(project, "--jobs", "1")
    out, err = broken.communicate(timeout=SOON * 2)
    assert broken.returncode == 1
    assert out.splitlines()[-1] == "attack: 2 rows, 0 red, 0 green, 2 broken"
    told = err.splitlines()
    assert told[:2] == told[2:], "in the order of the rows here, and told twice"
    for line, name in zip(told, ("held-is-always-true", "held-is-always-true-1"), strict=False):
        assert line.startswith(
            f"attack: BROKEN {name} specs/test_guard.py::test_was_never_green: not green before the change"
        )


@pytest.mark.parametrize("rows", [1, 4], ids=["started", "forked"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_an_interrupted_attack_leaves_no_process_and_no_file(
    project: Path, number: signal.Signals, rows: int
) -> None:
    with (project / "specs" / "test_guard.py").open("a") as file:
        file.write(
            "\nimport pathlib, time\ndef test_takes_long():\n"
            "    pathlib.Path(os.environ['ELSEWHERE'], 'begun').touch()\n    time.sleep(600)\n"
        )
    table(project, spec="test_takes_long", rows=rows)
    attacking = command(project, "--jobs", "1")
    eventually((project / "src" / "begun").exists, True, within=SOON)
    running = psutil.Process(attacking.pid).children(recursive=True)
    assert len(running) == (1 if rows == 1 else 2), "a forked row has its parent beside it"

    attacking.send_signal(number)
    attacking.communicate(timeout=SOON)

    assert attacking.returncode == 130
    assert not (project / ".attack").exists()
    eventually(lambda: [child for child in running if child.is_running()], [], within=SOON)


@pytest.mark.parametrize(
    ("cold", "program"), [(False, "blackstart_attack_parent"), (True, "pytest")], ids=["warm", "cold"]
)
def test_rows_are_forked_where_there_are_some_and_never_when_told_so(
    project: Path, row: Any, *, cold: bool, program: str
) -> None:
    with (project / "specs" / "test_guard.py").open("a") as file:
        file.write(
            "\ndef test_tells_its_program():\n    with open('/proc/self/cmdline') as read,"
            " open(os.environ['ELSEWHERE'] + '/programs', 'a') as told:\n"
            "        told.write(read.read().split(chr(0))[2] + chr(10))\n"
            "    assert guard.is_held('') is False, 'an empty owner holds nothing'\n"
        )
    rows = [row(f"row-{number}", spec="test_tells_its_program") for number in range(4)]
    assert {result.verdict for result in attack(rows, root=project, jobs=1, cold=cold)} == {Verdict.RED}
    assert (project / "src" / "programs").read_text().split() == [program] * 5, "seen green, then four rows"


def test_rows_that_cannot_be_forked_are_started_and_it_is_said_why(project: Path, row: Any) -> None:
    rows = [row(f"row-{number}", spec="test_nobody_holds_it") for number in range(4)]
    (project / "conftest.py").write_text(
        "def pytest_collection_finish(session):\n"
        "    if session.config.option.collectonly: import os; os._exit(3)\n"
    )
    remarks: list[str] = []
    results = attack(rows, root=project, jobs=1, remark=remarks.append)
    assert [result.verdict for result in results] == [Verdict.RED] * 4
    assert [remark.partition(":")[0] for remark in remarks] == ["job-0 starts each row from nothing"]


def test_rows_of_long_specs_come_first_and_the_others_stay_as_the_tables_have_them(row: Any) -> None:
    rows = [row(name, spec=f"test_{name}") for name in ("short", "long", "unknown", "longest", "tiny")]
    seconds = {rows[0].spec: 1.9, rows[1].spec: 3.0, rows[3].spec: 9.0, rows[4].spec: 0.1}
    names = [one.name for one in in_order(rows, seconds)]
    assert names == ["longest", "long", "short", "unknown", "tiny"]
