"""The soak counts what really ran, goes on where it was, and ends its load whatever happens."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from blackstart.cluster.waiting import eventually

SOAK = Path(__file__).parents[3] / "ci" / "soak.py"
SOON = 60.0
BARE = ("specs", "-pno:hypothesispytest", "-pno:anyio", "-pno:blackstart")
ALONE = (*BARE, "-n", "0")
"""One process and no plugin that is not looked at: most of a round is its pytest's start."""
SPECS = """
from pathlib import Path
def test_always_holds(): pass
def test_holds_but_for_the_second_time():
    count = Path(__file__).parent / "count"
    count.write_text(count.read_text() + "x" if count.exists() else "x")
    assert len(count.read_text()) != 2
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "test_two.py").write_text(SPECS)
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / ".gitignore").write_text("*\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    return tmp_path


def git(project: Path, *command: str) -> None:
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *who, "-C", str(project), *command], check=True)


def commit(project: Path, path: str) -> None:
    git(project, "add", "--force", path)
    git(project, "commit", "-q", "-m", "x")


def soak(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SOAK), *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        timeout=SOON * 2,
    )


def tally_of(*arguments: str) -> str:
    """The name of the tally that is counted in, of the project in the working folder."""
    return str(runpy.run_path(str(SOAK))["_tree_of"](list(arguments)))


@pytest.mark.holds("B-251")
def test_a_spec_that_failed_once_is_not_n_of_n_and_a_second_soak_counts_on(project: Path) -> None:
    first = soak(project, "--times", "2", *ALONE)
    assert first.returncode == 1, "a failure is not counted"
    assert re.search(r"2 of 2 .*test_always_holds", first.stdout)
    assert re.search(r"1 of 2 .*NOT HELD .*second_time", first.stdout)

    second = soak(project, "--times", "3", *ALONE)
    assert second.stderr.count("soak: round") == 1, "what was counted before is not run again"
    assert re.search(r"3 of 3 .*test_always_holds", second.stdout)
    assert second.returncode == 1
    assert re.search(r"^soak: 1 of 2 held in \d+ s$", first.stderr, re.MULTILINE), (
        "how each round went is told"
    )
    third = soak(project, "--times", "2", *ALONE)
    assert re.search(r"2 of 3 .*NOT HELD .*second_time", third.stdout), (
        "a failure that was counted is forgotten"
    )
    assert third.returncode == 1, "more passes do not make up for a failure"
    [tally] = (project / ".soak").glob("plain-*.jsonl")
    assert len([json.loads(line) for line in tally.read_text().splitlines()]) == 6


def test_an_argument_that_cannot_be_meant_is_bad_input(project: Path) -> None:
    wrong = soak(project, "--times", "none")
    assert wrong.returncode == 2
    assert "--times=none: not a whole number" in wrong.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_the_load_ends_with_the_soak_however_it_ends(project: Path, number: signal.Signals) -> None:
    (project / "specs" / "test_two.py").write_text("import time\ndef test_long(): time.sleep(600)\n")
    soaking = subprocess.Popen(
        [sys.executable, str(SOAK), "--load", "--times", "1", *ALONE],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    me = psutil.Process(soaking.pid)

    def busy() -> list[psutil.Process]:
        return [child for child in me.children() if "while True: pass" in " ".join(child.cmdline())]

    def testing() -> list[psutil.Process]:
        return [child for child in me.children(recursive=True) if "--junit-xml" in child.cmdline()]

    pytests: list[psutil.Process] = []
    try:
        eventually(lambda: len(busy()) == os.cpu_count() and bool(testing()), True, within=SOON)
        load, pytests = busy(), testing()
        soaking.send_signal(number)
        soaking.wait(timeout=SOON)
        eventually(lambda: [child for child in load if child.is_running()], [], within=SOON)
    finally:
        soaking.kill()
        soaking.wait()
        for left in pytests:  # a soak that was killed has left its round to end by itself
            if left.is_running():
                os.killpg(left.pid, signal.SIGKILL)


def test_a_new_file_that_git_does_not_know_yet_begins_a_new_tally(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    (project / ".gitignore").write_text(".soak\n__pycache__\n")
    before = tally_of("specs")
    assert tally_of("specs") == before, "the control"
    (project / "specs" / "conftest.py").write_text("")
    new = tally_of("specs")
    assert new != before
    (project / "specs" / "conftest.py").write_text("import json\n")
    assert tally_of("specs") not in {before, new}, "its text counts too"
    (project / "README").write_text("no code\n")
    (project / "specs" / "conftest.py").unlink()
    assert tally_of("specs") == before
    assert tally_of("specs", "-k", "always") != before, "what is asked for counts too"


def test_a_commit_that_changes_no_code_leaves_the_tally_standing(project: Path) -> None:
    assert soak(project, "--times", "1", *ALONE, "-k", "always").returncode == 0
    (project / "README").write_text("said better\n")
    commit(project, "README")
    assert "round" not in soak(project, "--times", "1", *ALONE, "-k", "always").stderr
    commit(project, "specs")
    assert "round 1" in soak(project, "--times", "1", *ALONE, "-k", "always").stderr, "the control"
    assert len(list((project / ".soak").glob("plain-*.jsonl"))) == 2


def test_how_many_run_at_once_is_the_callers_to_say(project: Path) -> None:
    (project / "specs" / "test_two.py").write_text(
        "import os\ndef test_so_many(): assert os.environ['PYTEST_XDIST_WORKER_COUNT'] == '3'\n"
    )
    assert soak(project, "--times", "1", *BARE).returncode == 1, "the control: two is what is not asked for"
    assert soak(project, "--times", "1", "-n", "3", *BARE).returncode == 0


def test_a_soak_that_was_interrupted_goes_on_with_what_it_had_counted(project: Path) -> None:
    (project / "specs" / "test_two.py").write_text(
        "import pathlib, time\n"
        "def test_stands_in_the_second_round():\n"
        "    first = not (at := pathlib.Path('count')).exists()\n"
        "    at.touch()\n"
        "    if not first and not pathlib.Path('go').exists():\n"
        "        pathlib.Path('stands').touch()\n"
        "        time.sleep(600)\n"
    )
    asked = [sys.executable, str(SOAK), "--times", "2", *ALONE]
    with subprocess.Popen(
        asked, cwd=project, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as soaking:
        eventually((project / "stands").exists, True, within=SOON)
        soaking.send_signal(signal.SIGINT)
        _, told = soaking.communicate(timeout=SOON)
    assert soaking.returncode == 130
    assert "go on with the same command" in told
    (project / "go").touch()
    rest = soak(project, "--times", "2", *ALONE)
    assert rest.stderr.count("soak: round") == 1
    assert re.search(r"2 of 2 .*test_stands", rest.stdout)
    assert rest.returncode == 0
