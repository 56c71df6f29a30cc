"""One session from its start to its judgement: who makes the run, who joins it, and when the gate and the tally speak."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.core.gate import objections
from blackstart.core.tally import InventoryError, Tally, read_inventory, take_tally
from blackstart.pytest_plugin.host import HOST, RUN_FILE, Host, host_of
from blackstart.pytest_plugin.ledger import Ledger
from blackstart.pytest_plugin.markers import is_marked, uses_the_run, validate_markers
from blackstart.pytest_plugin.options import SEED_INPUT, options_of
from blackstart.pytest_plugin.selection import is_unselected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blackstart.core.tally import Row

_INPUT = "blackstart_rendezvous"
_UNJUDGED = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR)


class Collecting:
    """In every process that collects: markers are judged, and it is found out whether a run is needed."""

    def __init__(self, config: pytest.Config, *, rendezvous: Path | None, ledger: Ledger) -> None:
        self._config = config
        self._rendezvous = rendezvous
        self._ledger = ledger

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Before anything is deselected: an empty selection must not look like an empty suite."""
        validate_markers(items)
        self._ledger.collected = sum(is_marked(item) for item in items)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """A run that left something out is not the whole suite."""
        self._ledger.deselected += len(items)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Makes the run where it is needed; a worker leaves word for its controller, who makes it before any spec runs."""
        follow_seed(options_of(self._config).seed)
        wanted = any(uses_the_run(item) for item in session.items)
        if self._rendezvous is not None:
            word = {
                "wanted": wanted,
                "collected": self._ledger.collected,
                "deselected": self._ledger.deselected,
            }
            worker = self._config.workerinput["workerid"]  # type: ignore[attr-defined]  # xdist adds it
            (self._rendezvous / f"{worker}.json").write_text(json.dumps(word), encoding="utf-8")
        elif wanted and not session.config.getoption("collectonly", default=False):
            host_of(self._config).run  # noqa: B018 - makes it

    def pytest_sessionfinish(self) -> None:
        """Specs ask for capabilities in the process that runs them; before a controller's own end."""
        host_of(self._config).tell_capabilities()


class Controlling:
    """In xdist's controller: makes the run when a worker asks for it, and names the spec a dead worker had open."""

    def __init__(self, config: pytest.Config, ledger: Ledger) -> None:
        self._host = host_of(config)
        self._ledger = ledger
        self._rendezvous = Path(tempfile.mkdtemp(prefix="blackstart-rendezvous-"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tells a worker where the run will be named, and the one seed of all."""
        node.workerinput[_INPUT] = str(self._rendezvous)
        node.workerinput[SEED_INPUT] = str(self._host.options.seed)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_xdist_node_collection_finished(self, node: Any) -> None:
        """Comes before any spec is handed out."""
        word = json.loads((self._rendezvous / f"{node.gateway.id}.json").read_text(encoding="utf-8"))
        self._ledger.collected = max(self._ledger.collected, word["collected"])
        self._ledger.deselected = max(self._ledger.deselected, word["deselected"])
        named = self._rendezvous / RUN_FILE
        if word["wanted"] and not named.exists():
            fresh = named.with_suffix(".new")
            fresh.write_text(str(self._host.run.dir), encoding="utf-8")
            fresh.rename(named)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """The spec that was open in a worker that died."""
        self._host.write(
            "verdict",
            spec=crashitem,
            verdict="harness-failure",
            phase="crash",
            text=f"the process that ran it died: {report.longrepr}",
        )

    def pytest_unconfigure(self) -> None:
        """The workers are gone, so is their meeting place."""
        shutil.rmtree(self._rendezvous, ignore_errors=True)


class Judging:
    """Where the whole session is seen: gate and tally at its end. The terminal summary reads what was found."""

    def __init__(self, config: pytest.Config, ledger: Ledger) -> None:
        self._config = config
        self.ledger = ledger
        self.against: list[str] = []
        self.tally: Tally | None = None
        self._rows = _inventory(config)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Objections make a green session red; an interrupted one has its own exit code."""
        if exitstatus not in _UNJUDGED and not self._config.getoption("collectonly", default=False):
            self._judge()
            if self.against and exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        host = host_of(self._config)
        if host.started:
            host.tell_capabilities()
            verdict = str(self.ledger.verdict()) if not self.against else "failed"
            host.run.update(tally=self.tally.lines()[0] if self.tally else None)
            host.write(
                "run-end", verdict=verdict, exitstatus=int(session.exitstatus), objections=self.against
            )
            host.run.finish(verdict)

    def _judge(self) -> None:
        options = options_of(self._config)
        counts = self.ledger.counts()
        missing: dict[str, str] = {}
        if counts.collected and options.required:
            from blackstart.cluster.capabilities import lacking, take_remarks  # noqa: PLC0415 - only where required

            missing = {name: reason for name in options.required if (reason := lacking(name)) is not None}
            for text in take_remarks():
                host_of(self._config).write("mark", text=text)
        self.against = objections(counts, ci=options.ci, required=options.required, missing=missing)
        if self._rows and is_unselected(self._config, deselected=self.ledger.deselected):
            self.tally = take_tally(self._rows, self.ledger.results(), required=options.required)
            if not self.tally.whole:
                self.against.append(
                    f"the tally is not whole: {len(self.tally.holes)} holes, {len(self.tally.unknown)} unknown ids"
                )


def begin(config: pytest.Config) -> None:
    """Registers what this process is: a plain session, xdist's controller, or one of its workers."""
    from blackstart.pytest_plugin.recording import Recording  # noqa: PLC0415 - after the host is in the stash
    from blackstart.pytest_plugin.sentinels import Sentinels  # noqa: PLC0415 - see above
    from blackstart.pytest_plugin.summary import Summary  # noqa: PLC0415 - see above

    register = config.pluginmanager.register
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    place = workerinput.get(_INPUT) if workerinput is not None else None
    rendezvous = Path(place) if place is not None else None
    writer = workerinput["workerid"] if workerinput is not None else "pytest"
    config.stash[HOST] = Host(options_of(config), writer=writer, rendezvous=rendezvous)
    ledger = Ledger()
    controls = config.pluginmanager.hasplugin("dsession")
    if controls:
        register(Controlling(config, ledger), "blackstart-controlling")
    else:
        register(Collecting(config, rendezvous=rendezvous, ledger=ledger), "blackstart-collecting")
        register(Sentinels(config), "blackstart-sentinels")
        register(Recording(config), "blackstart-recording")
    if workerinput is None:
        judging = Judging(config, ledger)
        register(ledger, "blackstart-ledger")
        register(judging, "blackstart-judging")
        register(Summary(config, judging), "blackstart-summary")


def follow_seed(seed: int) -> None:
    """Hypothesis draws from the run's seed too, where a spec has imported it; it is far too slow to import for nothing."""
    core = sys.modules.get("hypothesis.core")
    if core is not None and getattr(core, "global_force_seed", seed) is None:
        core.global_force_seed = seed  # type: ignore[attr-defined]  # what its own --hypothesis-seed sets


def _inventory(config: pytest.Config) -> dict[str, Row]:
    name = str(config.getini("blackstart_inventory"))
    if not name:
        return {}
    try:
        return read_inventory((config.rootpath / name).read_text(encoding="utf-8"))
    except (OSError, InventoryError) as error:
        raise pytest.UsageError(f"blackstart: blackstart_inventory={name}: {error}") from error
