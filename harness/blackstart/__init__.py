"""Start a real cluster, kill the part you name, and show with evidence what survived."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blackstart.cluster.cluster import Cluster
    from blackstart.cluster.node import Node
    from blackstart.cluster.waiting import NodeDied, VacuousWait, consistently, eventually, never
    from blackstart.core.fault import FaultNotConfirmed
    from blackstart.core.topology import (
        ArgvService,
        CallReady,
        Command,
        Group,
        HttpReady,
        LogReady,
        Place,
        Service,
        TcpReady,
        Topology,
    )
    from blackstart.process import StopEscalated

__all__ = [
    "ArgvService",
    "CallReady",
    "Cluster",
    "Command",
    "FaultNotConfirmed",
    "Group",
    "HttpReady",
    "LogReady",
    "Node",
    "NodeDied",
    "Place",
    "Service",
    "StopEscalated",
    "TcpReady",
    "Topology",
    "VacuousWait",
    "consistently",
    "eventually",
    "never",
]

_HOMES = {
    "Cluster": "blackstart.cluster.cluster",
    "TcpReady": "blackstart.core.topology",
    "Place": "blackstart.core.topology",
    "LogReady": "blackstart.core.topology",
    "HttpReady": "blackstart.core.topology",
    "Group": "blackstart.core.topology",
    "Command": "blackstart.core.topology",
    "CallReady": "blackstart.core.topology",
    "ArgvService": "blackstart.core.topology",
    "FaultNotConfirmed": "blackstart.core.fault",
    "Node": "blackstart.cluster.node",
    "NodeDied": "blackstart.cluster.waiting",
    "Service": "blackstart.core.topology",
    "StopEscalated": "blackstart.process",
    "Topology": "blackstart.core.topology",
    "VacuousWait": "blackstart.cluster.waiting",
    "consistently": "blackstart.cluster.waiting",
    "eventually": "blackstart.cluster.waiting",
    "never": "blackstart.cluster.waiting",
}


def __getattr__(name: str) -> object:
    """Public names are loaded when first asked for, so that importing the package costs nothing."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
