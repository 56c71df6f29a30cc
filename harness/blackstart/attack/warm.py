"""The parent that rows are forked from, as the campaign sees it: it is asked, and every answer has its deadline."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blackstart.attack.running import ended
from blackstart.core.commands import SetUpFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_ANSWER_S = 300.0
"""For an answer that takes milliseconds, or the seconds of an import, where the machine is idle."""
_END_S = 10.0
_CHUNK = 65536
_LONGEST_WORDS = 300


@dataclass(frozen=True)
class Forked:
    """A row's process: a child of the parent, so the parent reaps it."""

    parent: Parent
    pid: int

    def reap(self) -> int:
        """Its exit code, from the parent."""
        code: int = self.parent.ask(reap=self.pid)["exit"]
        return code


class Parent:
    """The process behind `parent.py`. Its life is its owner's: `close` ends it and whatever was not reaped."""

    def __init__(
        self, module: str, *, executable: str, cwd: Path, env: Mapping[str, str], errors: Path
    ) -> None:
        """What it complains of goes to the file `errors`, whose last line is told when it gives no answer."""
        self._errors = errors
        with errors.open("wb") as complaints:
            self._process = subprocess.Popen(
                [executable, "-m", module],
                cwd=cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                start_new_session=True,
                bufsize=0,
            )
        self._rest = b""

    @property
    def pid(self) -> int:
        """Of the parent itself."""
        return self._process.pid

    def unfit(self, names: Sequence[str], *, rewritten: Sequence[str]) -> str | None:
        """Has it import the names; why no row may be forked from it then, or `None`."""
        why: str | None = self.ask(**{"import": list(names), "rewritten": list(rewritten)})["unfit"]
        return why

    def run(self, arguments: Sequence[str], *, environ: Mapping[str, str], output: Path) -> Forked:
        """Forks `python -m pytest` with these arguments and this on top of the parent's environment."""
        told = self.ask(run=list(arguments), environ=dict(environ), output=str(output))
        return Forked(self, told["pid"])

    def ask(self, **order: Any) -> dict[str, Any]:
        """One order and its answer; `SetUpFailed` when there is none."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(order) + "\n").encode())
            answer: dict[str, Any] = json.loads(self._line())
        except (OSError, EOFError, ValueError) as error:
            raise SetUpFailed(
                "attack",
                f"pid {self.pid}",
                f"the process that rows are forked from does not answer: {str(error) or type(error).__name__}{self._last_words()}",
                remedy="--cold",
            ) from None
        return answer

    def close(self) -> None:
        """Ends its orders, upon which it ends what runs and itself; bounded."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if not ended(self.pid, within=_END_S):
            self._process.kill()
        self._process.stdout.close()
        self._process.wait()

    def _last_words(self) -> str:
        """The last line it complained with: a traceback ends in what went wrong. The file itself goes with the campaign."""
        lines = self._errors.read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f", and said last: {last[:_LONGEST_WORDS]}" if last else ""

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        until = time.monotonic() + _ANSWER_S
        while b"\n" not in self._rest:
            if not poller.poll(max(0.0, until - time.monotonic()) * 1000):
                raise TimeoutError(f"nothing within {_ANSWER_S:g} s")
            chunk = os.read(descriptor, _CHUNK)
            if not chunk:
                raise EOFError("it has ended")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line
