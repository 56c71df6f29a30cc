from __future__ import annotations

import subprocess
import sys

import pytest

_LOADED = "import sys, {module}; print(*sorted(m for m in sys.modules if m.startswith('{prefix}')))"


def _loads(module: str, prefix: str) -> set[str]:
    code = _LOADED.format(module=module, prefix=prefix)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "never"),
    [
        ("inference_fleet.tunnel", "inference_fleet.tunnel.frontend"),
        ("inference_fleet.tunnel", "inference_fleet.tunnel.worker"),
        ("inference_fleet.tunnel.worker", "inference_fleet.tunnel.frontend"),
        ("inference_fleet.tunnel.frontend", "inference_fleet.tunnel.worker"),
        ("inference_fleet.tunnel.http", "inference_fleet.tunnel.worker"),
        ("inference_fleet.tunnel.worker", "starlette"),
        ("inference_fleet.tunnel.worker", "uvicorn"),
        ("inference_fleet.tunnel.worker", "psycopg"),
        ("inference_fleet.tunnel", "aiohttp"),
        ("inference_fleet.tunnel.yamux.wire", "inference_fleet.store"),
    ],
)
def test_neither_side_of_the_tunnel_imports_the_other(module: str, never: str) -> None:
    assert module in _loads(module, "inference_fleet"), "control: the module itself is seen"
    assert _loads(module, never) == set()
