"""The real `ci/setup`, over an interpreter and a pip that only say how they were called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

PYTHON = """#!/bin/sh
echo "$*" >>"$CALLS"
here="$(dirname "$0")/.."
case "$*" in
"-m venv "*)
  for place; do :; done
  [ "$3" != --clear ] || rm -rf "$place"
  mkdir -p "$place/bin"
  cp "$0" "$place/bin/python"
  [ -e "$ENSUREPIP" ] || { echo "ensurepip is not available" >&2; touch "$place/half"; exit 1; }
  touch "$place/pip" ;;
"-m pip "*) [ -e "$here/pip" ] || { echo "No module named pip" >&2; exit 1; } ;;
esac
"""


class Checkout:
    """What `ci/setup` reads, and a `python3` whose `venv` makes a python and then, where ensurepip is here, a pip."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = root / ".venv"
        self.ensurepip = root / "ensurepip"
        for folder in ("ci", "bin"):
            (root / folder).mkdir()
        for name in ("ci/setup", "ci/env.sh", "requirements.lock", "pyproject.toml"):
            (root / name).write_text((ROOT / name).read_text())
        (root / "bin" / "python3").write_text(PYTHON)
        for program in ("ci/setup", "bin/python3"):
            (root / program).chmod(0o755)

    def setup(self) -> tuple[int, list[str], str]:
        """The exit code, what was asked of Python, and what was said."""
        calls = self.root / "calls"
        calls.write_text("")
        done = subprocess.run(
            [self.root / "ci" / "setup"],
            cwd="/",
            env={
                "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
                "CALLS": str(calls),
                "ENSUREPIP": str(self.ensurepip),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, calls.read_text().splitlines(), done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_an_environment_that_was_left_without_pip_is_made_anew(checkout: Checkout) -> None:
    for _ in range(2):
        code, calls, said = checkout.setup()
        assert code == 1
        assert calls[-1] == f"-m venv --clear {checkout.environment}", (
            "a half-made environment is taken as it is"
        )
        assert "ensurepip is not available" in said, "the reason is told"
        assert (checkout.environment / "bin" / "python").exists(), "the control: only pip is missing"
        assert not (checkout.environment / ".installed").exists()

    checkout.ensurepip.touch()
    code, calls, said = checkout.setup()
    assert code == 0, said
    assert not (checkout.environment / "half").exists(), "what was left of the half is gone"
    assert [call for call in calls if " install " in call]
    assert checkout.setup()[:2] == (0, []), "a second run changes nothing"


def test_an_environment_that_has_pip_is_kept_when_the_lock_file_changes(checkout: Checkout) -> None:
    checkout.ensurepip.touch()
    assert checkout.setup()[0] == 0
    (checkout.environment / "kept").touch()
    with (checkout.root / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    code, calls, _ = checkout.setup()
    assert code == 0
    assert [call for call in calls if " install " in call], "the control: something was to be done"
    assert (checkout.environment / "kept").exists(), "an environment that may be in use is cleared"
