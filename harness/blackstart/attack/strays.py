"""Processes of a campaign that are still there: known by where they work and by what was written into their environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import psutil

from blackstart.cluster.waiting import Waiter, WaitTimeout

if TYPE_CHECKING:
    from pathlib import Path

_LEAVE_S = 5.0


def clear_out(folder: Path) -> None:
    """Waits until nothing works in the folder any more, and kills what is left after a bounded while."""
    try:
        Waiter().eventually(lambda: bool(_strays(folder)), False, within=_LEAVE_S)
    except WaitTimeout:
        for process in _strays(folder):
            _kill(process, folder)


def _strays(folder: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid() and _is_here(process, folder)
    ]


def _is_here(process: psutil.Process, folder: Path) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        if process.cwd().startswith(f"{folder}/"):
            return True
        return process.environ().get("_BLACKSTART_ATTACK_REPORT", "").startswith(f"{folder}/")
    except (psutil.Error, OSError):
        return False


def _kill(process: psutil.Process, folder: Path) -> None:
    """Psutil compares the start time before it signals, so a recycled pid is never hit."""
    try:
        if _is_here(process, folder):
            process.kill()
    except psutil.NoSuchProcess:
        return
