"""Commands are found, not listed: modules of `cli.commands`, and what an embedded system's front brings."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

import blackstart.cli.commands as own
from blackstart.cluster.fronts import find_front

if TYPE_CHECKING:
    from blackstart.core.commands import Command


def find_commands() -> list[Command]:
    """All commands by name; each module of `cli.commands` has one `COMMAND`. A name taken twice is an error."""
    found: dict[str, Command] = {}
    modules = [
        import_module(f"{own.__name__}.{module.name}") for module in pkgutil.iter_modules(own.__path__)
    ]
    front = find_front()
    for command in [*(module.COMMAND for module in modules), *(front.commands() if front else ())]:
        if command.name in found:
            raise LookupError(f"command {command.name}: brought twice; one of the two must be renamed")
        found[command.name] = command
    return [found[name] for name in sorted(found)]
