"""A yamux peer nobody here wrote, in both roles; `ci/interop` plays the same with more streams and more bytes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PATIENCE_S = 120
CHECKS = (
    "content",
    "half-close",
    "go-away-said",
    "go-away-heard",
    "ping",
    "window-stall",
    "called-content",
    "called-half-close",
    "called-reset",
    "called-backlog",
    "called-go-away-said",
    "called-go-away-heard",
    "called-ping",
    "called-window-stall",
)


@pytest.mark.needs("go")
@pytest.mark.holds("T-11", "T-14", "T-16")
@pytest.mark.parametrize("role", ["dials", "accepts"])
def test_a_foreign_yamux_that_opens_and_serves_streams_is_understood(role: str) -> None:
    program = ROOT / ".interop" / "interop"
    built = subprocess.run([HERE / "build", program], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    done = subprocess.run(
        [
            program,
            *("-python", sys.executable, "-caller", HERE / "caller.py", "-only", f"^{role}-"),
            *("-streams", "40", "-bytes", str(256 << 20), "-patience", f"{PATIENCE_S}s"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    told = re.findall(r"^(HELD|FAILED) (\S+)", done.stdout, re.MULTILINE)
    assert told == [("HELD", name) for name in (*(f"{role}-{check}" for check in CHECKS), "volume")], (
        done.stdout
    )
    assert done.returncode == 0
