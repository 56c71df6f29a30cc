"""The run as one pytest process uses it: made, or joined, when a spec that needs it is about to run."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from blackstart.process import GuardianLease, Spawner
    from blackstart.pytest_plugin.options import Options
    from blackstart.record import Journal, Run

RUN_FILE = "run"
"""Stands in the rendezvous folder as soon as the controller has made the run: the path of its folder."""

HOST = pytest.StashKey["Host"]()


class Host:
    """This process's part in the run. With a `rendezvous` it joins the run that is named there; else it makes one.

    The controller of an xdist session makes the run and its workers join it, each with a connection of its own
    to the guardian, so that a killed worker takes down exactly what was its own.
    """

    def __init__(self, options: Options, *, writer: str, rendezvous: Path | None) -> None:
        self.options = options
        self.writer = writer
        self._rendezvous = rendezvous
        self._run: Run | None = None
        self._journal: Journal | None = None
        self._lease: GuardianLease | None = None
        self._spawner: Spawner | None = None
        self._stack = ExitStack()

    @property
    def started(self) -> bool:
        """Whether there is a run yet."""
        return self._run is not None

    @property
    def folder(self) -> Path | None:
        """The run's folder, where there is one by now."""
        return self._run.dir if self._run is not None else None

    def join_if_there_is_one(self) -> None:
        """A worker takes part in a run that others have made, so that its verdicts are in the journal too."""
        if self._run is None and self._rendezvous is not None and (self._rendezvous / RUN_FILE).exists():
            self._begin()

    @property
    def run(self) -> Run:
        """The run; made or joined now if that has not happened yet."""
        if self._run is None:
            self._begin()
        assert self._run is not None
        return self._run

    @property
    def journal(self) -> Journal:
        """This process's own file of the journal."""
        self.run  # noqa: B018 - makes it
        assert self._journal is not None
        return self._journal

    @property
    def spawner(self) -> Spawner:
        """Spawns on behalf of this process: when it dies, so do its children."""
        self.run  # noqa: B018 - makes it
        assert self._spawner is not None
        return self._spawner

    def write(self, kind: str, *, spec: str | None = None, **data: Any) -> None:
        """An event of the journal, where there is a run to write it into."""
        if self._journal is not None:
            self._journal.write(kind, spec=spec, **data)

    def tell_capabilities(self) -> None:
        """Into `run.json` goes what this process found out about the machine, and what a look at its files tells."""
        if self._run is not None:
            from blackstart.cluster.capabilities import asked, seen_at_a_glance  # noqa: PLC0415 - only where a run was made

            self._run.update(capabilities=asked() | seen_at_a_glance())

    def close(self) -> None:
        """Leaves the run; what this process still has running is ended by the guardian now."""
        self._stack.close()

    def _begin(self) -> None:
        from blackstart.process import Guardian, Spawner, sweep_earlier  # noqa: PLC0415 - nothing before a fixture asks
        from blackstart.record import Journal, Run, RunFolderError  # noqa: PLC0415 - see above

        if self._rendezvous is not None:
            if not (self._rendezvous / RUN_FILE).exists():
                raise pytest.UsageError(
                    "blackstart: run=: the controller made none, for no collected spec said it needs one;"
                    " try: name the fixture in the spec's arguments, or mark it with cluster()"
                )
            run = Run.attach(Path((self._rendezvous / RUN_FILE).read_text(encoding="utf-8")))
        else:
            swept = sweep_earlier(self.options.run_dir) if self.options.run_dir.is_dir() else []
            try:
                run = Run.create(
                    self.options.run_dir,
                    argv=["pytest", *sys.argv[1:]],
                    seed=self.options.seed,
                    versions=_versions(),
                )
            except RunFolderError as wrong:
                raise pytest.UsageError(f"blackstart: {wrong}") from wrong
            Guardian.start(run)
        with ExitStack() as stack:
            journal = stack.enter_context(Journal(run, writer=self.writer))
            lease = stack.enter_context(Guardian.connect(run))
            spawner = stack.enter_context(Spawner(run, journal, lease, user=os.getpid()))
            if self._rendezvous is None:
                journal.write(
                    "run-start", argv=sys.argv[1:], seed=self.options.seed, preset=self.options.preset
                )
                for earlier in swept:
                    journal.write("mark", text=f"swept {earlier}")
            self._stack = stack.pop_all()
        self._run, self._journal, self._lease, self._spawner = run, journal, lease, spawner


def host_of(config: pytest.Config) -> Host:
    """The host of a configured session."""
    return config.stash[HOST]


def _versions() -> dict[str, str]:
    return {
        "blackstart": version("blackstart"),
        "python": platform.python_version(),
        "pytest": pytest.__version__,
        "kernel": platform.release(),
    }
