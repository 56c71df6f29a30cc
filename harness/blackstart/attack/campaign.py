"""The whole attack: a scratch copy a job, every named spec seen green there first, then row after row."""

from __future__ import annotations

import os
import queue
import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from blackstart.attack.judge import Result, Verdict, judge, not_green
from blackstart.attack.running import Interrupted, Stop
from blackstart.attack.scratch import Layout, copy_tree, layout_of, replace_file, tree_files
from blackstart.attack.strays import clear_out
from blackstart.attack.trial import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blackstart.attack.table import Mutation

_ROW_BASE_S = 60.0
"""What a row may take beside the multiple of its spec's time when green; a mutant that hangs is a bad row."""
_ROW_MULTIPLE = 5.0
_GREEN_BASE_S = 120.0
_GREEN_PER_SPEC_S = 30.0
_WORTH_WARMING = 4
"""From so many rows a job on, a process to fork them from gives back what it costs."""
_LONG_S = 2.0
"""A row whose spec takes so long when green is begun early, so that all jobs end at about the same time."""
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
    cold: bool = False,
    tell: Callable[[Result], None] = lambda _: None,
    remark: Callable[[str], None] = lambda _: None,
) -> list[Result]:
    """Judges every row, telling each as it is known; results come back in the rows' order. Leaves nothing behind.

    Rows are forked from a process a job that has imported what is not under attack; `cold` starts each from nothing
    instead. Where forking is not possible that happens by itself, and `remark` says why.
    """
    layout = layout_of(root)
    workers = max(1, min(jobs or os.cpu_count() or 1, len(rows)))
    place = layout.root / ".attack"
    place.mkdir(exist_ok=True)
    _sweep(place)
    here = Path(tempfile.mkdtemp(prefix="run-", dir=place))
    stop = Stop()
    try:
        with FileLock(here / _OWNER):
            warm = not cold and len(rows) >= _WORTH_WARMING * workers
            campaign = _Campaign(rows, layout, here=here, workers=workers, warm=warm, stop=stop)
            return campaign.run(tell=tell, remark=remark)
    finally:
        stop.tell()
        clear_out(here)
        shutil.rmtree(here, ignore_errors=True)
        _remove_if_empty(place)


class _Campaign:
    """The jobs of one attack: each prepares its own copy, waits until all have seen their share green, then takes rows."""

    def __init__(
        self, rows: Sequence[Mutation], layout: Layout, *, here: Path, workers: int, warm: bool, stop: Stop
    ) -> None:
        self._rows = rows
        self._layout = layout
        self._here = here
        self._files = tree_files(layout.root)
        specs = sorted({row.spec for row in rows})
        self._shares = [specs[number::workers] for number in range(workers)]
        self._warm = warm
        self._stop = stop
        self._green = Greens()
        self._results: queue.SimpleQueue[Result | str | None] = queue.SimpleQueue()
        self._todo: queue.SimpleQueue[Mutation] = queue.SimpleQueue()
        self._all_green = threading.Barrier(workers, action=self._fill)

    def run(self, *, tell: Callable[[Result], None], remark: Callable[[str], None]) -> list[Result]:
        """All results, in the rows' order."""
        judged: dict[str, Result] = {}
        with ThreadPoolExecutor(len(self._shares), thread_name_prefix="attack") as pool:
            futures = [pool.submit(self._work, number) for number in range(len(self._shares))]
            try:
                open_jobs = len(futures)
                while open_jobs:
                    result = self._results.get()
                    if result is None:
                        open_jobs -= 1
                    elif isinstance(result, str):
                        remark(result)
                    else:
                        judged[result.row.name] = result
                        tell(result)
            except BaseException:
                self._give_up()
                raise
            for future in futures:
                future.result()
        return [judged[row.name] for row in self._rows]

    def _work(self, number: int) -> None:
        place = self._here / f"job-{number}"
        bench = Bench(layout=self._layout, tree=place / "tree", side=place / "side")
        try:
            with closing(bench):
                self._prepare(bench, self._shares[number])
                self._all_green.wait()
                self._take_rows(bench)
        except (Interrupted, threading.BrokenBarrierError):
            return
        except BaseException:
            self._give_up()
            raise
        finally:
            self._results.put(None)

    def _prepare(self, bench: Bench, specs: Sequence[str]) -> None:
        """Warm before the specs are seen green: they and the rows then run under the same conditions."""
        bench.prepare()
        copy_tree(self._layout, self._files, bench.tree)
        if self._warm and (
            why := bench.warm_up(specs, within=_GREEN_BASE_S + _GREEN_PER_SPEC_S, stop=self._stop)
        ):
            self._results.put(f"{bench.side.parent.name} starts each row from nothing: {why}")
        _see_green(specs, bench, self._green, stop=self._stop)

    def _take_rows(self, bench: Bench) -> None:
        while not self._stop.told:
            try:
                row = self._todo.get_nowait()
            except queue.Empty:
                return
            self._results.put(_one(row, bench, self._green, stop=self._stop))

    def _fill(self) -> None:
        for row in in_order(self._rows, self._green.seconds):
            self._todo.put(row)

    def _give_up(self) -> None:
        self._stop.tell()
        self._all_green.abort()


def in_order(rows: Sequence[Mutation], seconds: Mapping[str, float]) -> list[Mutation]:
    """Rows of long specs first, the longest at the head; all others stay as the tables have them."""
    return sorted(rows, key=lambda row: -took if (took := seconds.get(row.spec, 0.0)) >= _LONG_S else 0.0)


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
