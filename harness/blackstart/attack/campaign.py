"""The whole attack: a scratch copy a job, every named spec seen green there first, then row after row."""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from blackstart.attack.judge import Result, Verdict, judge, not_green
from blackstart.attack.scratch import Layout, copy_tree, layout_of, replace_file, tree_files
from blackstart.attack.strays import clear_out
from blackstart.attack.trial import Bench, Interrupted, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blackstart.attack.table import Mutation

_ROW_BASE_S = 60.0
"""What a row may take beside the multiple of its spec's time when green; a mutant that hangs is a bad row."""
_ROW_MULTIPLE = 5.0
_GREEN_BASE_S = 120.0
_GREEN_PER_SPEC_S = 30.0
_OWNER = "owner.lock"


@dataclass(frozen=True, kw_only=True)
class Greens:
    """What the untouched copy came to: per spec why it does not count as green, and how long it took."""

    objections: dict[str, str | None] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def attack(
    rows: Sequence[Mutation],
    *,
    root: Path,
    jobs: int | None = None,
    tell: Callable[[Result], None] = lambda _: None,
) -> list[Result]:
    """Judges every row, telling each as it is known; results come back in the rows' order. Leaves nothing behind."""
    layout = layout_of(root)
    workers = max(1, min(jobs or os.cpu_count() or 1, len(rows)))
    place = layout.root / ".attack"
    place.mkdir(exist_ok=True)
    _sweep(place)
    here = Path(tempfile.mkdtemp(prefix="run-", dir=place))
    stop = Stop()
    try:
        with FileLock(here / _OWNER):
            return _campaign(rows, layout, here=here, workers=workers, tell=tell, stop=stop)
    finally:
        stop.tell()
        clear_out(here)
        shutil.rmtree(here, ignore_errors=True)
        _remove_if_empty(place)


def _campaign(
    rows: Sequence[Mutation],
    layout: Layout,
    *,
    here: Path,
    workers: int,
    tell: Callable[[Result], None],
    stop: Stop,
) -> list[Result]:
    files = tree_files(layout.root)
    specs = sorted({row.spec for row in rows})
    shares = [specs[number::workers] for number in range(workers)]
    results: queue.SimpleQueue[Result | None] = queue.SimpleQueue()
    todo: queue.SimpleQueue[Mutation] = queue.SimpleQueue()
    green = Greens()
    all_green = threading.Barrier(workers, action=lambda: _fill(todo, rows))
    judged: dict[str, Result] = {}

    def work(number: int) -> None:
        try:
            bench = Bench(
                layout=layout, tree=here / f"job-{number}" / "tree", side=here / f"job-{number}" / "side"
            )
            bench.prepare()
            copy_tree(layout, files, bench.tree)
            _see_green(shares[number], bench, green, stop=stop)
            all_green.wait()
            while not stop.told:
                try:
                    row = todo.get_nowait()
                except queue.Empty:
                    return
                results.put(_one(row, bench, green, stop=stop))
        except (Interrupted, threading.BrokenBarrierError):
            return
        except BaseException:
            all_green.abort()
            stop.tell()
            raise
        finally:
            results.put(None)

    with ThreadPoolExecutor(workers, thread_name_prefix="attack") as pool:
        futures = [pool.submit(work, number) for number in range(workers)]
        try:
            open_jobs = workers
            while open_jobs:
                result = results.get()
                if result is None:
                    open_jobs -= 1
                    continue
                judged[result.row.name] = result
                tell(result)
        except BaseException:
            stop.tell()
            all_green.abort()
            raise
        for future in futures:
            future.result()
    return [judged[row.name] for row in rows]


def _fill(todo: queue.SimpleQueue[Mutation], rows: Sequence[Mutation]) -> None:
    for row in rows:
        todo.put(row)


def _see_green(specs: Sequence[str], bench: Bench, green: Greens, *, stop: Stop) -> None:
    """One pytest process runs this job's share of all named specs, sorted so that files stay together.

    One name that pytest does not find keeps it from running any: then each that did not run is asked alone.
    """
    if not specs:
        return
    trial = bench.run(specs, module="", within=_GREEN_BASE_S + _GREEN_PER_SPEC_S * len(specs), stop=stop)
    for spec in specs:
        seen = trial
        if not trial.phases(spec) and len(specs) > 1:
            seen = bench.run([spec], module="", within=_GREEN_BASE_S, stop=stop)
        green.objections[spec] = not_green(seen, spec, scratch=str(bench.tree))
        green.seconds[spec] = sum(phase["seconds"] for phase in seen.phases(spec))


def _one(row: Mutation, bench: Bench, green: Greens, *, stop: Stop) -> Result:
    objection = green.objections[row.spec]
    if objection is not None:
        return Result(row, Verdict.BROKEN, objection)
    path = bench.tree / row.file
    source = path.read_text(encoding="utf-8")
    mutant = row.mutate(source)
    if row.file.endswith(".py"):
        try:
            compile(mutant, row.file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            return Result(row, Verdict.BROKEN, f"the mutant does not compile: {error}")
    replace_file(path, mutant)
    try:
        within = _ROW_BASE_S + _ROW_MULTIPLE * green.seconds[row.spec]
        trial = bench.run([row.spec], module=bench.layout.module_of(row.file), within=within, stop=stop)
    finally:
        replace_file(path, source)
    folders = [str((bench.tree / name).resolve()) for name in bench.layout.sources]
    return judge(row, trial, scratch=str(bench.tree), mutated=folders)


def _sweep(place: Path) -> None:
    """Removes what campaigns left that were killed: their owner's lock is free."""
    for lock in place.glob(f"run-*/{_OWNER}"):
        folder = lock.parent
        try:
            with FileLock(lock, timeout=0):
                pass
        except Timeout:
            continue
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_empty(place: Path) -> None:
    if not any(place.iterdir()):
        place.rmdir()
