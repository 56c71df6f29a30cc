"""Imports once what every row would import anew, and is forked for each: a row then pays for the attacked code alone.

It is copied beside the probe, is started there by `python -m` with the folder and the environment of a row, and imports
nothing of blackstart. Orders are JSON lines on its stdin, each is answered by one on its stdout.

| order | answer |
|---|---|
| `{"import": [...], "rewritten": [...]}` | `{"unfit": why}`; null when it may be forked |
| `{"run": [...], "environ": {...}, "output": path}` | `{"pid": N}`, as soon as the child leads a session of its own |
| `{"reap": N}` | `{"exit": code}`, once that child has ended |

At the end of its orders it ends what still runs, and itself. A child differs from `python -m pytest` in this: what was
imported before stands in `sys.modules`, hashes are seeded once a parent, no collection of garbage looks at what stood
before the fork, and `/proc` shows the command and the first environment of the parent.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import sys
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NOT_REWRITTEN = "PYTEST_DONT_REWRITE"
"""What pytest looks for in a docstring before it complains of a module that was imported before it could rewrite it."""
_CHUNK = 65536


def _orders() -> Iterator[dict[str, Any]]:
    """Reads the descriptor itself: a child's `sys.stdin` must not hold what was meant for its parent."""
    rest = b""
    while chunk := os.read(0, _CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _answer(**told: Any) -> None:
    line = (json.dumps(told) + "\n").encode()
    while line:
        line = line[os.write(1, line) :]


def _unfit(names: Sequence[str], rewritten: Sequence[str]) -> str | None:
    """Imports the names; says why no child may be forked from what this process has become."""
    with (
        warnings.catch_warnings()
    ):  # what an import adds to the filters, pytest takes back after collection too
        for name in names:
            try:
                importlib.import_module(name)
            except ImportError:  # it wants another before it; a row imports it then, as ever
                continue
            except Exception as error:  # noqa: BLE001 - told, and nothing is forked from what it left
                return f"{name} does not import before pytest: {type(error).__name__}: {error}"
    for name in sorted(set(rewritten) & set(sys.modules)):
        module = sys.modules[name]
        module.__doc__ = f"{module.__doc__ or ''}\n{_NOT_REWRITTEN}"
    if attacked := sorted(name for name in sys.modules if _is_attacked(name)):
        return f"it would keep what is under attack: {', '.join(attacked)}"
    threads = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - pathlib may not be imported here
    if threads > 1:
        return f"what specs import starts {threads - 1} threads, and only one outlives a fork"
    gc.collect()
    gc.freeze()
    return None


def _is_attacked(name: str) -> bool:
    """Whether a module is of the packages under attack or lies in the scratch copy; this one lies beside it."""
    packages = os.environ.get("_BLACKSTART_ATTACK_PACKAGES", "").split(",")
    file = getattr(sys.modules[name], "__file__", None) or ""
    return name.partition(".")[0] in packages or file.startswith(f"{os.getcwd()}{os.sep}")  # noqa: PTH109 - see above


def _fork(order: dict[str, Any]) -> int:
    """The child's pid, or 0 in the child, which by then has the descriptors, environment and session of a row."""
    ready, tell_ready = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell_ready)
        os.read(ready, 1)  # the end of the pipe
        os.close(ready)
        return pid
    os.setsid()
    _redirect(os.devnull, os.O_RDONLY, 0)
    _redirect(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 1, 2)
    os.environ.update(order["environ"])
    sys.orig_argv = [sys.executable, "-m", "pytest", *order["run"]]
    sys.argv = ["-m", *order["run"]]
    os.close(ready)
    os.close(tell_ready)
    return 0


def _redirect(path: str, flags: int, *targets: int) -> None:
    descriptor = os.open(path, flags, 0o666)
    for target in targets:
        os.dup2(descriptor, target)
    os.close(descriptor)


def _is_child() -> bool:
    """Obeys until there are no orders left; true in each child, whose part begins there."""
    running: set[int] = set()
    for order in _orders():
        if "import" in order:
            _answer(unfit=_unfit(order["import"], order["rewritten"]))
        elif "run" in order:
            pid = _fork(order)
            if not pid:
                return True
            running.add(pid)
            _answer(pid=pid)
        else:
            pid = order["reap"]
            _, status = os.waitpid(pid, 0)
            running.remove(pid)
            _answer(exit=os.waitstatus_to_exitcode(status))
    for pid in running:  # not reaped, so each group is still its own
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return False


if __name__ == "__main__" and _is_child():
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)
