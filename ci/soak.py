"""Counts how often each spec holds. One pytest process a round; a killed soak goes on where it was.

The tally is a file in `.soak/`: one line a run of a spec, so that nothing counted is lost. It belongs to one state of
the code and one set of arguments, and `--load` has a tally of its own; changed code begins a new one.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart.cli.parser import Parser, whole_number
from blackstart.core.commands import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator

PLACE = Path(".soak")
_CODE = ("harness", "services", "specs", "conftest.py", "pyproject.toml", "requirements.lock")
"""What a result depends on: a change elsewhere, as of a page, leaves the tally standing."""
_BUSY = "while True: pass"
_DIES_WITH_PARENT = (
    "import ctypes, os, signal, sys; ctypes.CDLL(None).prctl(1, signal.SIGKILL);"
    " os.getppid() == int(sys.argv[1]) or sys.exit()\n" + _BUSY
)


def main() -> int:
    """0 when every spec held every time."""
    parser = Parser(prog="ci/soak")
    parser.add_argument(
        "--times", type=whole_number("--times", lowest=1, highest=10_000), default=30, metavar="N"
    )
    parser.add_argument("--load", action="store_true")
    try:
        arguments, pytest_arguments = parser.parse_known_args()
    except BadInput as wrong:
        print(wrong, file=sys.stderr)
        return wrong.code
    PLACE.mkdir(exist_ok=True)
    tally = PLACE / f"{'load' if arguments.load else 'plain'}-{_tree_of(pytest_arguments)}.jsonl"
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    specs = _collect(pytest_arguments)
    if not specs:
        print("blackstart: specs=: none collected; try: ci/soak specs/cluster", file=sys.stderr)
        return 2
    try:
        with _load(arguments.load):
            _soak(
                specs,
                arguments.times,
                tally,
                options=[word for word in pytest_arguments if not _is_path(word)],
            )
    except KeyboardInterrupt:
        _table(specs, arguments.times, tally)
        print(f"soak: interrupted; go on with the same command (counted so far: {tally})", file=sys.stderr)
        return 130
    return _table(specs, arguments.times, tally)


def _soak(specs: list[str], times: int, tally: Path, *, options: list[str]) -> None:
    """Rounds over the specs that still owe runs, until none does."""
    while True:
        counts = _counts(tally)
        due = [spec for spec in specs if sum(counts.get(spec, (0, 0))) < times]
        if not due:
            return
        done = min(sum(counts.get(spec, (0, 0))) for spec in due)
        print(f"soak: round {done + 1} of {times}, {len(due)} specs", file=sys.stderr, flush=True)
        began = time.monotonic()
        results = _round(due, options)
        with tally.open("a", encoding="utf-8") as file:
            for spec in due:
                file.write(json.dumps({"spec": spec, "held": results.get(spec, False)}) + "\n")
        held = sum(results.get(spec, False) for spec in due)
        took_s = time.monotonic() - began
        print(f"soak: {held} of {len(due)} held in {took_s:.0f} s", file=sys.stderr, flush=True)


def _round(specs: list[str], options: list[str]) -> dict[str, bool]:
    """One pytest process over the specs; what it does not report did not hold."""
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        report = Path(folder) / "junit.xml"
        argv = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "load", "-q", "-p", "no:cacheprovider"]
        extra = ["-o", "junit_family=xunit1", "--junit-xml", str(report), *specs]
        code = _run([*argv, *options, *extra])
        if not report.exists():
            print(f"soak: pytest ended with {code} and wrote no report", file=sys.stderr)
            return {}
        return _read(report, specs)


def _run(argv: list[str]) -> int:
    """A pytest process that is interrupted as we are, and gets the time to end its clusters."""
    process = subprocess.Popen(argv, start_new_session=True, stdin=subprocess.DEVNULL)
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise


def _read(report: Path, specs: list[str]) -> dict[str, bool]:
    """Results by node id; a spec with a failure or an error beside its pass did not hold."""
    results: dict[str, bool] = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written by our own pytest a moment ago
        nodeid = _nodeid(case, specs)
        bad = any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))
        results[nodeid] = results.get(nodeid, True) and not bad
    return results


def _nodeid(case: ET.Element, specs: list[str]) -> str:
    told = f"{case.get('file', '')}::{case.get('name', '')}"
    return next((spec for spec in specs if spec == told), told)


def _collect(arguments: list[str]) -> list[str]:
    """The specs by node id: those of specs/cluster, or those of the arguments."""
    asked = arguments or ["specs/cluster"]
    if not any(_is_path(word) for word in asked):
        asked = [*asked, "specs/cluster"]
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *asked],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "CI"},
    )
    specs = [line.strip() for line in found.stdout.splitlines() if "::" in line]
    if found.returncode not in {0, 5}:
        print(found.stdout[-4000:], found.stderr[-4000:], file=sys.stderr)
    return specs


def _is_path(word: str) -> bool:
    return not word.startswith("-") and Path(word.partition("::")[0]).exists()


def _table(specs: list[str], times: int, tally: Path) -> int:
    counts = _counts(tally)
    whole = 0
    for spec in sorted(specs):
        held, failed = counts.get(spec, (0, 0))
        whole += held >= times and not failed
        print(f"{held:4} of {held + failed:<4} {'' if held >= times and not failed else 'NOT HELD '}{spec}")
    print(f"soak: {whole} of {len(specs)} specs held {times} of {times}; tally: {tally.resolve()}")
    return 0 if whole == len(specs) else 1


def _counts(tally: Path) -> dict[str, tuple[int, int]]:
    counts: dict[str, tuple[int, int]] = {}
    if not tally.exists():
        return counts
    for line in tally.read_text(encoding="utf-8").splitlines():
        try:
            result = json.loads(line)
        except ValueError:  # the last line of a soak that was killed
            continue
        held, failed = counts.get(result["spec"], (0, 0))
        counts[result["spec"]] = (held + result["held"], failed + (not result["held"]))
    return counts


def _tree_of(arguments: list[str]) -> str:
    """A short name for this state of the code and these arguments."""
    state = hashlib.sha256("\0".join(arguments).encode())
    for command in (
        ["git", "ls-tree", "HEAD", "--", *_CODE],
        ["git", "diff", "HEAD", "--", *_CODE],
    ):
        state.update(subprocess.run(command, capture_output=True, check=True).stdout)
    new = ["git", "ls-files", "-z", "--others", "--exclude-standard", "--", *_CODE]
    for name in subprocess.run(new, capture_output=True, check=True).stdout.split(b"\0"):
        path = Path(os.fsdecode(name))
        if name and path.is_file():
            state.update(name + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return state.hexdigest()[:12]


@contextmanager
def _load(wanted: bool) -> Iterator[None]:  # noqa: FBT001 - the flag itself
    """One busy process a core; each dies with us, however we end."""
    busy: list[subprocess.Popen[bytes]] = []
    try:
        busy.extend(
            subprocess.Popen([sys.executable, "-c", _DIES_WITH_PARENT, str(os.getpid())])
            for _ in range((os.cpu_count() or 1) if wanted else 0)
        )
        yield
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
