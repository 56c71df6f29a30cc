"""What this machine can do, found out by trying and named in the run's report; never assumed.

| capability | is here when |
|---|---|
| `container` | an engine answers and has the Postgres image |
| `netns` | a network namespace can be made |
| `strace` | strace may trace a child |
| `faketime` | libfaketime is installed |
| `go` | a Go tool chain is installed |
| `browser` | a Chromium is installed |
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart.core.gate import CAPABILITIES

if TYPE_CHECKING:
    from collections.abc import Callable

_TRY_S = 5.0
_FAKETIME = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib*/faketime/libfaketime.so.1")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@cache
def lacking(name: str) -> str | None:
    """Why a capability is not here; `None` when it is. Asked once a process."""
    return _PROBES[name]()


def all_lacking() -> dict[str, str]:
    """Every capability that is not here, with the reason."""
    return {name: reason for name in CAPABILITIES if (reason := lacking(name)) is not None}


def _container() -> str | None:
    from blackstart.infra.engine import find_engine  # noqa: PLC0415 - only where somebody asks for containers

    engine = find_engine()
    if isinstance(engine, str):
        return engine
    image = os.environ.get("BLACKSTART_POSTGRES_IMAGE", "").strip()
    if not image:
        from blackstart.infra.container import DEFAULT_IMAGE  # noqa: PLC0415 - brings a heavy client library

        image = DEFAULT_IMAGE
    return None if engine.has_image(image) else f"the engine at {engine.address} has no image {image}"


def _netns() -> str | None:
    own = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return _tried("unshare", *own, "--net", "true")


def _strace() -> str | None:
    return _tried("strace", "-f", "-e", "trace=none", "-o", os.devnull, "true")


def _faketime() -> str | None:
    found = any(any(Path("/").glob(pattern.lstrip("/"))) for pattern in _FAKETIME)
    return None if found else "libfaketime.so.1 is not installed"


def _go() -> str | None:
    return None if shutil.which("go") else "go is not on PATH"


def _browser() -> str | None:
    return (
        None
        if any(shutil.which(name) for name in _BROWSERS)
        else f"none of {', '.join(_BROWSERS)} is on PATH"
    )


def _tried(*argv: str) -> str | None:
    """Why a command that should do nothing does not succeed at it."""
    if shutil.which(argv[0]) is None:
        return f"{argv[0]} is not on PATH"
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(argv)}: {error}"
    if done.returncode == 0:
        return None
    told = done.stderr.decode(errors="replace").strip().splitlines()
    return f"{' '.join(argv)}: {told[-1] if told else f'exit {done.returncode}'}"


_PROBES: dict[str, Callable[[], str | None]] = {
    "browser": _browser,
    "container": _container,
    "faketime": _faketime,
    "go": _go,
    "netns": _netns,
    "strace": _strace,
}
