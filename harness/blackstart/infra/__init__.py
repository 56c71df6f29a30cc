"""Where Postgres comes from: one server a run, a database a spec, and servers to hurt.

Names are loaded when they are asked for: whoever only wants to know whether an engine answers pays for no driver.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blackstart.infra.admin import Budgets
    from blackstart.infra.choice import PostgresChoice, Provider, parse_choice
    from blackstart.infra.database import Database
    from blackstart.infra.errors import BadPostgresOption, InfraError
    from blackstart.infra.infra import Infra
    from blackstart.infra.own import Harm, OwnServer
    from blackstart.infra.server import PostgresServer

_WHERE = {
    "BadPostgresOption": "errors",
    "Budgets": "admin",
    "Database": "database",
    "Harm": "own",
    "Infra": "infra",
    "InfraError": "errors",
    "OwnServer": "own",
    "PostgresChoice": "choice",
    "PostgresServer": "server",
    "Provider": "choice",
    "parse_choice": "choice",
}

__all__ = [
    "BadPostgresOption",
    "Budgets",
    "Database",
    "Harm",
    "Infra",
    "InfraError",
    "OwnServer",
    "PostgresChoice",
    "PostgresServer",
    "Provider",
    "parse_choice",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
