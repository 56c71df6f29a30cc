"""One pytest process in a scratch copy: started with nothing of ours around it, bounded, and ended with its group."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blackstart.attack.judge import Trial
from blackstart.attack.running import Cold, run_out
from blackstart.attack.warm import Parent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blackstart.attack.running import Running, Stop
    from blackstart.attack.scratch import Layout

_PROBE = "blackstart_attack_probe"
_PARENT = "blackstart_attack_parent"
_MODULE = "_BLACKSTART_ATTACK_MODULE"
_KEPT = ("BLACKSTART_POSTGRES", "BLACKSTART_POSTGRES_IMAGE", "BLACKSTART_TIME_FACTOR")
_DROPPED = ("PYTEST_", "_BLACKSTART_ATTACK_", "BLACKSTART_", "PYTHONPATH", "COV_")
_DROPPED_NAMES = ("CI",)  # the gate judges whole runs; a trial is one spec
_LONGEST_OUTPUT = 20_000


@dataclass(kw_only=True)
class Bench:
    """One scratch copy with a place beside it for the probe and what it writes down, and what its rows are forked from."""

    layout: Layout
    tree: Path
    side: Path
    _parent: Parent | None = field(default=None, init=False)

    def prepare(self) -> None:
        """Puts the probe, the witness and the parent's program where no mutation reaches them."""
        here = Path(__file__).parent
        self.side.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(here / "probe.py", self.side / f"{_PROBE}.py")
        shutil.copyfile(here / "parent.py", self.side / f"{_PARENT}.py")
        shutil.copyfile(here / "witness.py", self.side / "sitecustomize.py")

    def warm_up(self, specs: Sequence[str], *, within: float, stop: Stop) -> str | None:
        """From now on rows are forked from one process that has imported what collecting their files imports.

        Why not, when they are not: then each is started from nothing.
        """
        files = sorted({spec.partition("::")[0] for spec in specs})
        trial = self.run(files, "--collect-only", module="", within=within, stop=stop)
        if not (seen := trial.of("foreign")):
            return f"collecting them came to no end: {(trial.output.splitlines() or [''])[-1]}"
        parent = Parent(
            _PARENT,
            executable=sys.executable,
            cwd=self.tree,
            env=self._environment(module=""),
            errors=self.side / "parent.txt",
        )
        self._parent = parent
        if (why := parent.unfit(seen[0]["names"], rewritten=seen[0]["rewritten"])) is not None:
            self.close()
        return why

    def close(self) -> None:
        """Ends what rows were forked from."""
        if self._parent is not None:
            self._parent.close()
            self._parent = None

    def run(self, specs: Sequence[str], *options: str, module: str, within: float, stop: Stop) -> Trial:
        """Runs the named specs once and reads what was written down."""
        report, witness, output = self._written()
        for file in (report, witness, output):
            file.unlink(missing_ok=True)
        arguments = ["-p", _PROBE, "-p", "no:cacheprovider", "-q", "--no-header", *options]
        if not any(self._mentions(spec, "hypothesis") for spec in specs):
            arguments += ["-p", "no:hypothesispytest"]  # its summary imports all of it, half a second a row
        process = self._start([*arguments, "--rootdir", str(self.tree), *specs], module=module, output=output)
        in_time, code = run_out(process, within=within, stop=stop)
        return Trial(
            facts=_lines(report),
            witnesses=_lines(witness),
            timed_out=not in_time,
            exit_code=code,
            output=output.read_text(encoding="utf-8", errors="replace")[-_LONGEST_OUTPUT:],
        )

    def _start(self, arguments: Sequence[str], *, module: str, output: Path) -> Running:
        if self._parent is not None:
            return self._parent.run(arguments, environ={_MODULE: module}, output=output)
        environment = self._environment(module=module)
        return Cold(arguments, executable=sys.executable, cwd=self.tree, env=environment, output=output)

    def _written(self) -> tuple[Path, Path, Path]:
        return self.side / "report.jsonl", self.side / "witness.jsonl", self.side / "output.txt"

    def _environment(self, *, module: str) -> dict[str, str]:
        report, witness, _ = self._written()
        sources = (str((self.tree / source).resolve()) for source in self.layout.sources)
        searched = [str(self.side), *sources, *filter(None, [os.environ.get("PYTHONPATH", "")])]
        return {
            **_environment(),
            "PYTHONPATH": os.pathsep.join(searched),
            "_BLACKSTART_ATTACK_REPORT": str(report),
            "_BLACKSTART_ATTACK_WITNESS": str(witness),
            "_BLACKSTART_ATTACK_PACKAGES": ",".join(self.layout.packages),
            _MODULE: module,
        }

    def _mentions(self, spec: str, word: str) -> bool:
        return word in (self.tree / spec.partition("::")[0]).read_text(encoding="utf-8")


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
