"""What no spec may leave behind; looked at after its fixtures are gone, so the guilty one fails and not the next."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from blackstart.cluster.waiting import Waiter, WaitTimeout
from blackstart.core.sentinel import Baseline, Inventory, Sentinel, appeared
from blackstart.pytest_plugin.host import host_of
from blackstart.pytest_plugin.markers import needed_capabilities, uses_the_run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    from blackstart.core.sentinel import Leak

_SETTLE_S = 2.0
"""How long something that is just ending may take; only spent where something is left at first sight."""
_HELPERS_OF_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")

_extra: list[Sentinel] = []


def add_sentinel(
    name: str,
    snapshot: Callable[[], Inventory],
    compare: Callable[[Inventory, Inventory], Sequence[str]] = appeared,
) -> None:
    """Adds a sentinel of your own to every spec of this process: one more thing that must not be left behind."""
    _extra.append(Sentinel(name, snapshot, compare))


class Sentinels:
    """The plugin that looks before each spec's set-up and after its tear-down."""

    def __init__(self, config: pytest.Config) -> None:
        self._host = host_of(config)
        self._baseline: Baseline | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, None, None]:
        """What is there before the spec."""
        self._baseline = Baseline((*self._own(item), *_extra))
        self._baseline.take()
        yield

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """What a fixture of a wider scope brings is that scope's to end, not the spec's."""
        if fixturedef.scope == "function":
            return (yield)
        with self.adopting():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """What is still there after it. A tear-down that failed already has its own error to tell."""
        yield
        if leaks := self._left():
            lines = "\n".join(f"  {leak}" for leak in leaks)
            self._host.write("harness-failure", spec=item.nodeid, leaks=[str(leak) for leak in leaks])
            pytest.fail(f"{item.nodeid} left behind:\n{lines}", pytrace=False)

    @contextmanager
    def adopting(self) -> Iterator[None]:
        """What appears inside is shared by the run, not leaked by the spec that happened to start it."""
        if self._baseline is None:
            yield
            return
        before = self._baseline.state()
        try:
            yield
        finally:
            self._baseline.adopt(before)

    def _left(self) -> list[Leak]:
        baseline, self._baseline = self._baseline, None
        if baseline is None or not baseline.leaks():
            return []
        gc.collect()  # a reference cycle that is closed by the collector is untidy, but nothing is left behind
        try:
            Waiter(factor=self._host.options.time_factor).eventually(baseline.leaks, [], within=_SETTLE_S)
        except WaitTimeout:
            return baseline.leaks()
        return []

    def _own(self, item: pytest.Item) -> list[Sentinel]:
        sentinels = [Sentinel("descriptors", descriptors), Sentinel("children", children)]
        if self._host.started and uses_the_run(item):
            from blackstart.net.leases import held_leases  # noqa: PLC0415 - only where a run is

            sentinels += [Sentinel("processes", self._processes), Sentinel("port leases", held_leases)]
            sentinels += self._on_servers(item)
        return sentinels

    def _on_servers(self, item: pytest.Item) -> list[Sentinel]:
        """Databases and containers, where the spec can have made any."""
        found: list[Sentinel] = []
        names = set(getattr(item, "fixturenames", ()))
        in_container = "container" in needed_capabilities(item) or self._host.options.postgres == "container"
        if in_container or names & {"infra", "fleet"}:
            from blackstart.pytest_plugin.spec_infra import containers, databases  # noqa: PLC0415 - brings a driver

            found.append(Sentinel("databases", lambda: databases(self._host.run)))
            if in_container:
                found.append(Sentinel("containers", lambda: containers(self._host.run)))
        return found

    def _processes(self) -> Inventory:
        """Everything tagged as this process's own, wherever it has gone in the process tree."""
        from blackstart.process.procfs import cmdline_of  # noqa: PLC0415 - only where a run is
        from blackstart.process.strays import Sought, find  # noqa: PLC0415 - only where a run is

        found = find(Sought(run=self._host.run.id, user=os.getpid()))
        return {(stat.pid, stat.started): f"pid {stat.pid} ({cmdline_of(stat.pid)})" for stat in found}


def descriptors() -> Inventory:
    """Open descriptors of this process with what they lead to; a port lease is told by its own sentinel."""
    found: dict[tuple[int, str], str] = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - asked for each spec; pathlib makes an object an entry
        try:
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115 - see above
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        if "/blackstart-ports-" not in target:
            found[int(name), target] = f"{name} -> {target}"
    return found


def children() -> Inventory:
    """Direct children of this process but for what the run shares, which is told by its tags."""
    found: dict[tuple[int, str], str] = {}
    for task in os.listdir("/proc/self/task"):  # noqa: PTH208 - see descriptors
        try:
            pids = Path(f"/proc/self/task/{task}/children").read_text(encoding="ascii").split()
        except OSError:  # the thread has just ended
            continue
        for pid in pids:
            told = _child(pid)
            if told is not None:
                found[int(pid), told] = f"pid {pid} ({told})"
    return found


def _child(pid: str) -> str | None:
    """The command line of a child that is ours to end; `None` for one that is gone, shared or Python's own."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        command = (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    except OSError:
        return None
    if not command or any(helper in command for helper in _HELPERS_OF_PYTHON):
        return None
    if b"BLACKSTART_RUN=" in environ and b"BLACKSTART_USER=" not in environ:
        return None
    return command
