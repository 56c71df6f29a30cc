"""Subprocesses that play a user of a run, and an independent way to count what they started: by a mark in the command line.

Run as `python players.py owner PARENT MARK` or `python players.py user RUN_DIR MARK SHARED_MARK`.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from blackstart.cluster.waiting import eventually
from blackstart.process import Guardian, HarnessFailure, Spawner
from blackstart.record import Journal, Run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

FAMILIES = 7
"""How many processes with its mark an owner has started: see `families`."""
TAGGED = 6
"""How many of them carry the run's tag."""
SLEEPERS = {"plain": 1, "deaf": 1, "escaping": 2, "wiped": 2}
"""How many of each family sleep once all of it is there; the shell of the deaf one stays a shell."""


_STARTED_WITHIN_S = 10.0


@contextmanager
def running(argv: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process outside of any run, killed and reaped whatever happens."""
    with subprocess.Popen(argv, **options) as process:
        try:
            yield process
        finally:
            process.kill()


def new_mark() -> str:
    """A duration no other `sleep` on this machine was given."""
    return f"300.{secrets.randbelow(10**12):012}"


def families(mark: str) -> dict[str, list[str]]:
    """A plain child; one deaf to signals; one whose child has its own session; one whose child has an empty environment."""
    return {
        "plain": ["sleep", mark],
        "deaf": ["sh", "-c", f"trap '' TERM INT HUP QUIT; sleep {mark}; :"],
        "escaping": ["sh", "-c", f"setsid sleep {mark} & exec sleep {mark}"],
        "wiped": ["sh", "-c", f"env -i sleep {mark} & exec sleep {mark}"],
    }


def marked(mark: str) -> list[int]:
    """The processes whose command line has the mark, zombies and the players left out."""
    return [
        pid
        for pid, cmdline in _read_all("cmdline")
        if mark.encode() in cmdline and b"players.py" not in cmdline
    ]


def sleeping(mark: str) -> int:
    """How many sleep: a shell that has yet to become one, or its child, has the mark already and is lost in between."""
    return sum(cmdline == f"sleep\0{mark}\0".encode() for _, cmdline in _read_all("cmdline"))


def tagged(variable: str, value: object) -> list[int]:
    """The processes whose environment has `variable=value`."""
    wanted = f"\0{variable}={value}\0".encode()
    return [pid for pid, environ in _read_all("environ") if wanted in b"\0" + environ]


def _read_all(name: str) -> list[tuple[int, bytes]]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                found.append((int(folder.name), (folder / name).read_bytes()))
            except OSError:
                continue  # gone meanwhile
    return found


@dataclass
class Player:
    """A user of a run in a process of its own."""

    process: subprocess.Popen[str]
    facts: dict[str, Any]

    @classmethod
    def start(cls, role: str, place: Path, mark: str, *shared: str) -> Player:
        """One whose families are all there: a shell takes its time to start its own."""
        process = subprocess.Popen(
            [sys.executable, __file__, role, place, mark, *shared],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        player = cls(process, json.loads(process.stdout.readline()))
        with ExitStack() as ended:
            ended.enter_context(player)
            eventually(lambda: sleeping(mark), sum(SLEEPERS.values()), within=_STARTED_WITHIN_S)
            ended.pop_all()
        return player

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        with self.process:
            pass

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def run_dir(self) -> Path:
        return Path(self.facts["dir"])

    @property
    def guardian(self) -> int:
        return int(self.facts["guardian"])

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def leave(self) -> None:
        """Let it say goodbye, and wait until it has ended."""
        self.process.communicate("leave\n")

    def ask(self, line: str) -> str:
        """Its one line of answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _play(role: str, place: Path, mark: str, shared_mark: str = "") -> None:
    if role == "owner":
        run = Run.create(place, argv=sys.argv)
        Guardian.start(run)
    else:
        run = Run.attach(place)
    lease = Guardian.connect(run)
    journal = Journal(run, writer=role)
    spawner = Spawner(run, journal, lease, user=os.getpid())
    log_dir = run.spec_dir("play")

    def spawn(node: str, argv: list[str], *, shared: bool = False) -> None:
        spawner.spawn(
            node=f"{role}-{node}", argv=argv, log_dir=log_dir, spec="play", incarnation=1, shared=shared
        )

    for node, argv in families(mark).items():
        spawn(node, argv)
    if shared_mark:
        spawn("shared", ["sleep", shared_mark], shared=True)
    _say(json.dumps({"run": run.id, "dir": str(run.dir), "guardian": lease.guardian_pid}))
    for line in sys.stdin:
        if line.strip() == "leave":
            break
        try:
            spawn("late", ["sleep", mark])
        except HarnessFailure as wrong:
            _say(f"{type(wrong).__name__} {wrong}".replace("\n", " "))
        else:
            _say("spawned")
    lease.close()


if __name__ == "__main__":
    _play(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
