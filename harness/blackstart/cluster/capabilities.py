"""What this machine can do, found out by trying and named in the run's report; never assumed.

| capability | is here when |
|---|---|
| `container` | an engine answers and has the Postgres image |
| `netns` | a network namespace can be made |
| `strace` | strace may attach to a process that runs already |
| `faketime` | libfaketime is installed |
| `go` | a Go tool chain is installed, and the Go yamux that the interop specs play |
| `openssl` | the program is on PATH, which makes the certificates of specs about TLS |
| `browser` | a Chromium is installed |
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart.core.gate import required_capabilities

if TYPE_CHECKING:
    from collections.abc import Callable

_TRY_S = 5.0
_FAKETIME = (
    "usr/lib/*/faketime/libfaketime.so.1",
    "usr/lib/faketime/libfaketime.so.1",
    "usr/lib64/faketime/libfaketime.so.1",
    "usr/local/lib/faketime/libfaketime.so.1",
)
_GO_YAMUX = Path("/usr/share/gocode/src/github.com/hashicorp/yamux")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_ROOT = Path("/")
_remarks: list[str] = []
_asked: dict[str, str] = {}
_GLANCES = ("browser", "faketime", "go", "openssl")


@cache
def lacking(name: str) -> str | None:
    """Why a capability is not here; `None` when it is. Asked once a process."""
    reason = _PROBES[name]()
    _asked[name] = reason or "here"
    return reason


def asked() -> dict[str, str]:
    """What this process has asked so far: `here`, or why not. It asks nothing itself."""
    return dict(_asked)


def take_remarks() -> list[str]:
    """What a probe met that the journal should know, each once."""
    taken = _remarks.copy()
    _remarks.clear()
    return taken


def seen_at_a_glance() -> dict[str, str]:
    """What a look at the file system tells, for a run that waits for no probe: `here`, or why not. The others are not asked."""
    return {name: lacking(name) or "here" for name in _GLANCES}


def find_faketime(root: Path = _ROOT) -> Path | None:
    """Where Debian and others put libfaketime, or `None`."""
    return next((path for place in _FAKETIME for path in sorted(root.glob(place))), None)


def _container() -> str | None:
    from blackstart.infra.choice import image_name  # noqa: PLC0415 - only for who asks
    from blackstart.infra.engine import EngineError, find_engine, find_wanted_engine  # noqa: PLC0415 - see above

    required = "container" in required_capabilities(os.environ.get("BLACKSTART_REQUIRE"))
    engine = find_wanted_engine(remark=_remarks.append) if required else find_engine()
    if isinstance(engine, str):
        return engine
    image = image_name()
    try:
        has_it = engine.has_image(image)
    except EngineError as error:
        return str(error)
    return None if has_it else f"the engine at {engine.address} has no image {image}"


def _netns() -> str | None:
    own = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    return _tried("unshare", *own, "--net", "true")


def _strace() -> str | None:
    """To trace a child of one's own is allowed where to attach to another process is not, and attaching is what is needed."""
    if shutil.which("strace") is None:
        return "strace is not on PATH"
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as target:
        argv = ["strace", "-f", "-e", "trace=none", "-o", os.devnull, "-p", str(target.pid)]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as tracing:
            too_late = threading.Timer(_TRY_S, tracing.kill)
            too_late.start()
            assert tracing.stderr is not None
            said = tracing.stderr.readline().decode(errors="replace").strip()
            too_late.cancel()
            tracing.kill()
        target.kill()
    return (
        None if said.endswith("attached") else f"{' '.join(argv)}: {said or f'no word within {_TRY_S:g} s'}"
    )


def _faketime() -> str | None:
    return None if find_faketime() else "libfaketime.so.1 is not installed"


def _go() -> str | None:
    if shutil.which("go") is None:
        return "go is not on PATH"
    return None if _GO_YAMUX.is_dir() else f"{_GO_YAMUX} is not installed"


def _openssl() -> str | None:
    return None if shutil.which("openssl") else "openssl is not on PATH"


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
    "openssl": _openssl,
    "strace": _strace,
}
