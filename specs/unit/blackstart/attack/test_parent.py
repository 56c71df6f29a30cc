"""The process that rows are forked from: a forked row is like a started one, and nothing under attack is there before it."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from blackstart.attack.running import Stop, end_group
from blackstart.attack.scratch import copy_tree, layout_of, tree_files
from blackstart.attack.trial import Bench
from blackstart.attack.warm import Forked, Parent
from blackstart.cluster.waiting import eventually
from blackstart.core.commands import SetUpFailed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SOON = 240.0
FACTS = """
import gc, json, os, pathlib, signal, sys, threading, warnings

def test_tells_what_it_sees():
    main = sys.modules["__main__"]
    told = {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path,
        "folder": os.getcwd(),
        "environ": dict(os.environ),
        "leads its session": os.getsid(0) == os.getpgid(0) == os.getpid(),
        "descriptors": sorted(map(int, os.listdir("/proc/self/fd"))),
        "stdin": os.readlink("/proc/self/fd/0"),
        "main": [main.__name__, main.__file__, main.__spec__.name],
        "signals": sorted(f"{number} {signal.getsignal(number)}" for number in signal.valid_signals()),
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "threads": threading.active_count(),
        "collects": [gc.isenabled(), *gc.get_threshold(), gc.callbacks],
        "filters": [str(one) for one in warnings.filters],
        "recursion": sys.getrecursionlimit(),
    }
    pathlib.Path(os.environ["ELSEWHERE"], "told.json").write_text(json.dumps(told))

def test_takes_long():
    import subprocess
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path(os.environ["ELSEWHERE"], "child").write_text(str(child.pid))
    child.wait()
"""
ROW = "specs/test_facts.py::test_tells_what_it_sees"
LONG = "specs/test_facts.py::test_takes_long"


@pytest.fixture
def bench(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A scratch copy of the small project, its parent not started."""
    (project / "specs" / "test_facts.py").write_text(FACTS)
    layout, place = layout_of(project), tmp_path_factory.mktemp("bench")
    bench = Bench(layout=layout, tree=place / "tree", side=place / "side")
    bench.prepare()
    copy_tree(layout, tree_files(layout.root), bench.tree)
    with closing(bench):
        yield bench


def parent_of(bench: Bench) -> Parent:
    assert bench._parent is not None
    return bench._parent


@pytest.fixture
def parent(bench: Bench) -> Iterator[Parent]:
    """The program alone, with nothing imported yet."""
    env = bench._environment(module="")
    with closing(
        Parent(
            "blackstart_attack_parent",
            executable=sys.executable,
            cwd=bench.tree,
            env=env,
            errors=bench.side / "parent.txt",
        )
    ) as parent:
        yield parent


@pytest.mark.holds("B-250")
def test_a_forked_row_sees_what_a_started_one_sees(bench: Bench, project: Path) -> None:
    def told() -> dict[str, Any]:
        trial = bench.run([ROW], module="pkg.guard", within=SOON, stop=Stop())
        assert trial.exit_code == 0, trial.output
        facts: dict[str, Any] = json.loads((project / "src" / "told.json").read_text())
        return facts

    started = told()
    assert bench.warm_up([ROW], within=SOON, stop=Stop()) is None
    forked = told()
    assert psutil.Process(parent_of(bench).pid).children() == [], "reaped"
    assert forked.pop("environ") == started.pop("environ"), "the row's environment"
    assert forked == started


def test_a_child_is_the_next_row_s_equal_though_a_module_changed_between(bench: Bench, row: Any) -> None:
    """What a row imported is gone with it: the parent never holds it."""
    noticed = row("noticed", spec="test_nobody_holds_it")
    assert bench.warm_up([noticed.spec], within=SOON, stop=Stop()) is None
    guard = bench.tree / noticed.file
    sound, codes = guard.read_text(), list[int | None]()
    for text in (sound, noticed.mutate(sound), sound):
        guard.write_text(text)
        os.utime(guard, (len(codes), len(codes)))
        codes.append(bench.run([noticed.spec], module="pkg.guard", within=SOON, stop=Stop()).exit_code)
    assert codes == [0, 1, 0]


def test_a_parent_that_imported_the_tree_is_not_forked(parent: Parent) -> None:
    why = parent.unfit(["json", "pkg.guard"], rewritten=[])
    assert why == "it would keep what is under attack: pkg, pkg.guard"


def test_a_parent_with_a_second_thread_is_not_forked(parent: Parent, bench: Bench) -> None:
    (bench.side / "starts.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    why = parent.unfit(["starts"], rewritten=[])
    assert why == "what specs import starts 1 threads, and only one outlives a fork"


def test_what_does_not_import_by_itself_is_left_to_the_rows_and_any_other_error_is_told(
    parent: Parent, bench: Bench
) -> None:
    (bench.side / "wants.py").write_text("import nothing_like_it\n")
    (bench.side / "breaks.py").write_text("{}['nothing like it']\n")
    assert parent.unfit(["wants"], rewritten=[]) is None
    assert parent.unfit(["breaks"], rewritten=[]) == (
        "breaks does not import before pytest: KeyError: 'nothing like it'"
    )


def test_what_pytest_would_have_rewritten_draws_no_warning(parent: Parent, tmp_path: Path) -> None:
    """Anyio is such a plugin, and comes with every web server; a project may make of each warning an error."""
    assert parent.unfit(["pytest", "anyio"], rewritten=["anyio", "not_there"]) is None
    output = tmp_path / "output"
    row = parent.run(
        ["-W", "error", "-p", "no:cacheprovider", "--version", "--version"], environ={}, output=output
    )
    assert row.reap() == 0, output.read_text()


def test_a_forked_row_that_hangs_is_ended_with_all_it_started(bench: Bench, project: Path) -> None:
    assert bench.warm_up([LONG], within=SOON, stop=Stop()) is None
    warm, stop = parent_of(bench), Stop()
    row = warm.run([LONG], environ={}, output=bench.side / "output.txt")
    child = _child_of(row, project)
    stop.add(row)
    stop.tell()
    assert row.reap() == -9
    eventually(
        lambda: _lives(child), False, within=SOON
    )  # its child is of its group, and dies when it is its turn
    assert psutil.pid_exists(warm.pid), "the next row needs it"


def test_closing_the_parent_ends_a_row_that_nobody_reaped(bench: Bench, project: Path) -> None:
    assert bench.warm_up([LONG], within=SOON, stop=Stop()) is None
    row = parent_of(bench).run([LONG], environ={}, output=bench.side / "output.txt")
    child = _child_of(row, project)
    try:
        bench.close()
        assert not _lives(row.pid), "the row ends with its parent"
        assert not _lives(child), "and so does what it started"
    finally:
        end_group(row)


def test_a_parent_that_is_gone_stops_the_attack_with_the_way_around_it(parent: Parent) -> None:
    psutil.Process(parent.pid).kill()
    with pytest.raises(SetUpFailed, match=r"does not answer: .*; try: --cold"):
        parent.unfit([], rewritten=[])


def test_a_parent_that_dies_of_an_error_leaves_it_as_its_last_words(bench: Bench) -> None:
    (bench.side / "dies.py").write_text("raise RuntimeError('no such luck')\n")
    errors, env = bench.side / "dies.txt", bench._environment(module="")
    with (
        closing(Parent("dies", executable=sys.executable, cwd=bench.tree, env=env, errors=errors)) as parent,
        pytest.raises(
            SetUpFailed, match=r"does not answer: .*, and said last: RuntimeError: no such luck; try: "
        ),
    ):
        parent.unfit([], rewritten=[])


def _child_of(row: Forked, project: Path) -> int:
    """The pid its spec wrote down."""
    told = project / "src" / "child"
    eventually(lambda: told.exists() and told.read_text().isdigit(), True, within=SOON)
    assert _lives(row.pid)
    return int(told.read_text())


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
