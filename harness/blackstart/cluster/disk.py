"""The disk that a measurement needs, asked for before it begins: a full disk in the middle of it reads like a broken fleet."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_MIB = 1024 * 1024


class DiskShort(AssertionError):
    """There is less room than is needed; the text names both, the place and the remedy."""


def require_disk(place: Path, *, needed: int, what: str) -> int:
    """The bytes that are free at `place`; `DiskShort` where they are fewer than `needed`. Never a skip, which is easily overlooked."""
    free = shutil.disk_usage(place).free
    if free < needed:
        raise DiskShort(
            f"blackstart: disk={place}: {what} needs {_mib(needed)} MiB there and {_mib(free)} MiB are free, "
            f"{_mib(needed - free)} too few; try: make room, or --bs-run-dir on a larger disk"
        )
    return free


def _mib(count: int) -> int:
    return -(-count // _MIB)
