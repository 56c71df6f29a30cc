"""The real `ci/versions`, over interpreters and an environment that only say how they were called."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]

SETUP = """#!/bin/sh
version="$($BLACKSTART_PYTHON -c minor)"
mkdir -p ".venv-$version/bin"
cp "$BLACKSTART_PYTHON" ".venv-$version/bin/python"
"""


def interpreter(place: Path, version: str, *, code: int = 0) -> Path:
    """What answers as a Python of that version does, and passes, or fails, every spec."""
    place.parent.mkdir(parents=True, exist_ok=True)
    minor = version.rpartition(".")[0]
    place.write_text(
        f'#!/bin/sh\ncase "$*" in\n  *"[:3]"*) echo {version} ;;\n  -c*) echo {minor} ;;\n'
        f'  *) echo "$BLACKSTART_PYTHON: $*"; exit {code} ;;\nesac\n'
    )
    place.chmod(0o755)
    return place


def versions(root: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a checkout that has nothing else, with nothing else on PATH than what it needs and `bin`."""
    (root / "ci").mkdir(exist_ok=True)
    for name, source in (
        ("versions", (ROOT / "ci/versions").read_text()),
        ("env.sh", (ROOT / "ci/env.sh").read_text()),
        ("setup", SETUP),
    ):
        (root / "ci" / name).write_text(source)
        (root / "ci" / name).chmod(0o755)
    tools = root / "tools"
    tools.mkdir(exist_ok=True)
    for tool in ("bash", "sh", "env", "dirname", "readlink", "mkdir", "cp"):
        found = next(path for folder in os.get_exec_path() if (path := Path(folder) / tool).exists())
        (tools / tool).unlink(missing_ok=True)
        (tools / tool).symlink_to(found)
    given = {"PATH": f"{root / 'bin'}:{tools}", "HOME": str(root / "home"), **environ}
    return subprocess.run(
        [root / "ci" / "versions", *arguments],
        cwd="/",
        env=given,
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_python_of_this_machine_runs_the_specs_and_one_that_is_not_here_is_told(tmp_path: Path) -> None:
    here = interpreter(tmp_path / "bin/python3.13", "3.13.7")
    done = versions(tmp_path, "-k", "one")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith(f"{here}: -m pytest ")
    assert "specs/unit/inference_fleet/tunnel " in line
    assert line.endswith(" -k one")
    assert (
        "versions: held on 3.13.7; failed on none; not on this machine: 3.12" in done.stderr.splitlines()[-1]
    )
    # one that is in no folder of PATH, and a stand-in on PATH that runs nothing
    interpreter(tmp_path / "home/.pyenv/versions/3.12.1/bin/python", "3.12.1")
    (tmp_path / "bin/python3.12").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "bin/python3.12").chmod(0o755)
    both = versions(tmp_path)
    assert both.returncode == 0, both.stderr
    assert "held on 3.12.1, 3.13.7; failed on none; not on this machine: none" in both.stderr


def test_specs_that_fail_on_one_python_are_an_error_and_keep_no_other_from_its_turn(tmp_path: Path) -> None:
    interpreter(tmp_path / "bin/python3.12", "3.12.9", code=1)
    interpreter(tmp_path / "bin/python3.13", "3.13.7")
    done = versions(tmp_path)
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 2
    assert "held on 3.13.7; failed on 3.12.9; not on this machine: none" in done.stderr


def test_where_none_is_here_it_says_so(tmp_path: Path) -> None:
    done = versions(tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "held on none; failed on none; not on this machine: 3.12, 3.13" in done.stderr


def test_a_python_that_was_named_has_to_be_there(tmp_path: Path) -> None:
    here = interpreter(tmp_path / "other/python", "3.14.0")
    assert "held on 3.14.0" in versions(tmp_path, BLACKSTART_PYTHONS=str(here)).stderr
    done = versions(tmp_path, BLACKSTART_PYTHONS=f"{here} /nowhere/python")
    assert done.returncode == 4
    assert done.stdout == ""
    assert "BLACKSTART_PYTHONS=/nowhere/python: not a Python interpreter; try: " in done.stderr


def test_every_spec_it_names_is_there_and_those_of_tls_and_of_both_ends_of_a_tunnel_are_among_them() -> None:
    source = (ROOT / "ci/versions").read_text()
    frontend = "specs/unit/inference_fleet/frontend"
    listed = (
        source.partition("\nspecs=(")[2].partition(")")[0].replace("$frontend", frontend).replace('"', "")
    )
    named = listed.split()
    tls = {path.name for path in (ROOT / frontend).glob("test_tls*.py")}
    assert {f"{frontend}/{name}" for name in {"test_takeover.py", "test_tunnel_route.py", *tls}} <= set(named)
    assert "specs/unit/inference_fleet/worker/test_tunnel.py" in named
    assert [name for name in named if not (ROOT / name).exists()] == []
