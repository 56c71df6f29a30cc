"""One pytest process in a scratch copy: started with nothing of ours around it, bounded, and ended with its group."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackstart.attack.judge import Trial

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blackstart.attack.scratch import Layout

_PROBE = "blackstart_attack_probe"
_KEPT = ("BLACKSTART_POSTGRES", "BLACKSTART_POSTGRES_IMAGE", "BLACKSTART_TIME_FACTOR")
_DROPPED = ("PYTEST_", "_BLACKSTART_ATTACK_", "BLACKSTART_", "PYTHONPATH", "COV_")
_DROPPED_NAMES = ("CI",)  # the gate judges whole runs; a trial is one spec
_LONGEST_OUTPUT = 20_000


class Interrupted(Exception):
    """The campaign was told to stop."""


@dataclass
class Stop:
    """Told once; every pytest process that runs is then ended, and none starts any more."""

    _told: threading.Event = field(default_factory=threading.Event)
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def told(self) -> bool:
        """Whether to stop."""
        return self._told.is_set()

    def tell(self) -> None:
        """Stop now."""
        with self._lock:
            self._told.set()
            for process in self._running:
                end_group(process)

    def add(self, process: subprocess.Popen[bytes]) -> None:
        """A process started; ended at once when the stop was told meanwhile."""
        with self._lock:
            self._running.add(process)
            if self._told.is_set():
                end_group(process)

    def remove(self, process: subprocess.Popen[bytes]) -> None:
        """A process ended."""
        with self._lock:
            self._running.discard(process)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One scratch copy with a place beside it for the probe and what it writes down."""

    layout: Layout
    tree: Path
    side: Path

    def prepare(self) -> None:
        """Puts the probe and the witness where no mutation reaches them."""
        here = Path(__file__).parent
        self.side.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(here / "probe.py", self.side / f"{_PROBE}.py")
        shutil.copyfile(here / "witness.py", self.side / "sitecustomize.py")

    def run(self, specs: Sequence[str], *, module: str, within: float, stop: Stop) -> Trial:
        """Runs the named specs once and reads what was written down."""
        report, witness, output = (
            self.side / name for name in ("report.jsonl", "witness.jsonl", "output.txt")
        )
        for file in (report, witness, output):
            file.unlink(missing_ok=True)
        environment = {
            **_environment(),
            "PYTHONPATH": os.pathsep.join(
                [
                    str(self.side),
                    *(str((self.tree / source).resolve()) for source in self.layout.sources),
                    *filter(None, [os.environ.get("PYTHONPATH", "")]),
                ]
            ),
            "_BLACKSTART_ATTACK_REPORT": str(report),
            "_BLACKSTART_ATTACK_WITNESS": str(witness),
            "_BLACKSTART_ATTACK_PACKAGES": ",".join(self.layout.packages),
            "_BLACKSTART_ATTACK_MODULE": module,
        }
        argv = [sys.executable, "-m", "pytest", "-p", _PROBE, "-p", "no:cacheprovider", "-q", "--no-header"]
        if not any(self._mentions(spec, "hypothesis") for spec in specs):
            argv += ["-p", "no:hypothesispytest"]  # its summary imports all of it, half a second a row
        with output.open("wb") as sink:
            process = subprocess.Popen(
                [*argv, "--rootdir", str(self.tree), *specs],
                cwd=self.tree,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        stop.add(process)
        try:
            timed_out = not _ended(process, within=within)
        finally:
            end_group(process)
            stop.remove(process)
            process.wait()
        if stop.told:
            raise Interrupted
        return Trial(
            facts=_lines(report),
            witnesses=_lines(witness),
            timed_out=timed_out,
            exit_code=process.returncode,
            output=output.read_text(encoding="utf-8", errors="replace")[-_LONGEST_OUTPUT:],
        )

    def _mentions(self, spec: str, word: str) -> bool:
        return word in (self.tree / spec.partition("::")[0]).read_text(encoding="utf-8")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kills the process's session; harmless where it is gone already (it is not reaped before)."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


def _ended(process: subprocess.Popen[bytes], *, within: float) -> bool:
    """Whether it ended in time; it is not reaped here, so its process group stays its own until it is ended."""
    descriptor = os.pidfd_open(process.pid)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(within * 1000))
    finally:
        os.close(descriptor)


def _environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT
        or (name not in _DROPPED_NAMES and not any(name.startswith(prefix) for prefix in _DROPPED))
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file that a killed process may have left in the middle of one."""
    if not path.exists():
        return []
    facts = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            facts.append(json.loads(line))
        except ValueError:
            continue
    return facts
