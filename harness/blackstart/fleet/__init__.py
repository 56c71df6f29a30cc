"""The embedded inference fleet as a cluster: the only part of the harness that knows it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from blackstart.fleet.options import FleetOptions

if TYPE_CHECKING:
    from blackstart.fleet.fleet import Fleet

__all__ = ["Fleet", "FleetOptions"]


def __getattr__(name: str) -> object:
    """`Fleet` is loaded when first asked for: naming the sub-commands needs none of it."""
    if name != "Fleet":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("blackstart.fleet.fleet").Fleet
