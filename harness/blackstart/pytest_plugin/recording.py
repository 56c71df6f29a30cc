"""Each spec's story in the journal: when it began, what its waits saw, what it came to, and the harness's own failures."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.cluster.stall import StallWatch
from blackstart.cluster.waiting import Waiter, installed
from blackstart.core.gate import CAPABILITIES
from blackstart.core.verdicts import PhaseResult, judge_spec
from blackstart.pytest_plugin.host import host_of
from blackstart.pytest_plugin.markers import held_ids, is_marked, needed_capabilities, uses_the_run
from blackstart.pytest_plugin.options import options_of
from blackstart.pytest_plugin.stash import CLUSTERS, PHASES, POSTGRES, STALL

if TYPE_CHECKING:
    from collections.abc import Generator

_LONGEST_TEXT = 8000
_STALL_EVERY_S = 0.1
_STALL_BOUND_S = 2.0
"""A machine that stood still this long may have been late for anything; scaled as the waits are."""


class Recording:
    """The plugin of every process that runs specs: a plain session, or an xdist worker."""

    def __init__(self, config: pytest.Config) -> None:
        self._host = host_of(config)
        self._options = options_of(config)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Waits of the spec go to the journal, scaled by the one factor; its end is told whatever happens."""
        item.stash[PHASES] = []
        spec = item.nodeid
        self._host.join_if_there_is_one()

        def waited(outcome: str, data: dict[str, Any]) -> None:
            self._host.write("wait", spec=spec, outcome=outcome, **data)

        self._host.write("mark", spec=spec, text="spec begins")
        factor = self._options.time_factor
        with ExitStack() as stack:
            stack.enter_context(installed(Waiter(factor=factor, sink=waited)))
            if uses_the_run(item):
                watch = StallWatch(every_s=_STALL_EVERY_S, bound_s=_STALL_BOUND_S * factor)
                item.stash[STALL] = stack.enter_context(watch)
            stack.callback(self._host.write, "mark", spec=spec, text="spec ends")
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """A capability that is not here skips the spec, or fails it where the run requires that capability."""
        needed = needed_capabilities(item)
        if not needed:
            return
        from blackstart.cluster.capabilities import lacking, take_remarks  # noqa: PLC0415 - only where one is needed

        for name in needed:
            reason = lacking(name)
            for text in take_remarks():
                self._host.write("mark", spec=item.nodeid, text=text)
            if reason is None:
                continue
            if name in self._options.required:
                pytest.fail(f"BLACKSTART_REQUIRE names {name}, which is not here: {reason}", pytrace=False)
            pytest.skip(f"needs {name}: {reason}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """A process that died unasked fails the spec it died in; where the spec failed too, both are told."""
        try:
            yield
        except Exception as error:
            for report in _deaths(item):
                error.add_note(f"a process died unasked: {report}")
            raise
        if deaths := _deaths(item):
            pytest.fail("a process died unasked:\n" + "\n".join(deaths), pytrace=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """What the controller of an xdist session has to know about the spec travels with its report."""
        report = yield
        watch = item.stash.get(STALL, None)
        machine = watch.take() if watch is not None else ""
        skipped_for = [name for name in needed_capabilities(item) if report.skipped and _names(report, name)]
        report.blackstart = {  # type: ignore[attr-defined]  # xdist carries whatever a report holds, as JSON
            "marked": is_marked(item),
            "holds": list(held_ids(item)),
            "needs": list(needed_capabilities(item)),
            "skipped_for": skipped_for,
            "cluster": bool(CLUSTERS in item.stash) or item.get_closest_marker("cluster") is not None,
            "postgres": item.stash.get(POSTGRES, None),
            "run": str(self._host.folder) if self._host.folder else None,
        }
        if machine:
            self._host.write("mark", spec=item.nodeid, phase=report.when, text=machine)
        if machine and report.failed and report.when == "call":
            report.blackstart["inconclusive"] = machine
        self._journal(item, report, call, machine=machine)
        return report

    def _journal(
        self, item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None], *, machine: str
    ) -> None:
        """The product's verdict is written as soon as it is known; what follows joins it and never replaces it."""
        phases = item.stash.setdefault(PHASES, [])
        text = "" if report.passed else str(report.longreprtext)[:_LONGEST_TEXT]
        phase = PhaseResult(report.when, report.outcome, text, machine)
        phases.append(phase)
        verdict = judge_spec([phase])
        if verdict.product is not None and (phase.phase == "call" or report.skipped):
            self._host.write(
                "verdict",
                spec=item.nodeid,
                verdict=str(verdict.product),
                text=text,
                seconds=round(call.duration, 3),
            )
        if verdict.harness:
            self._host.write(
                "verdict", spec=item.nodeid, verdict="harness-failure", phase=phase.phase, text=text
            )
        if phase.phase == "call":
            for cluster in item.stash.get(CLUSTERS, []):
                cluster.note(f"spec ends: {item.nodeid}: {report.outcome}")


def _deaths(item: pytest.Item) -> list[str]:
    return [node.describe_death() for cluster in item.stash.get(CLUSTERS, []) for node in cluster.dead]


def _names(report: pytest.TestReport, capability: str) -> bool:
    assert capability in CAPABILITIES
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
    return f"needs {capability}: " in reason
