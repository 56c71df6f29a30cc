"""What may be done to a node in which state: one table, so that no two operations can overlap by accident."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(StrEnum):
    """Where a node stands. `died` and `failed` are the two ends nobody asked for."""

    IDLE = "idle"
    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    STOPPING = "stopping"
    FAILED = "failed"
    DIED = "died"


class Operation(StrEnum):
    """What a spec or a person may ask of a node."""

    START = "start"
    STOP = "stop"
    KILL = "kill"
    PAUSE = "pause"
    RESUME = "resume"
    RESTART = "restart"


class NodeBusy(RuntimeError):
    """The node is in the middle of something, or in a state in which the operation means nothing."""


# A graceful stop must be let finish: a restart that came in between would turn it into a crash.
ALLOWED: Mapping[Operation, frozenset[State]] = MappingProxyType(
    {
        Operation.START: frozenset({State.IDLE, State.DIED, State.FAILED}),
        Operation.STOP: frozenset({State.READY, State.STARTING}),
        Operation.KILL: frozenset(State) - {State.IDLE},
        Operation.PAUSE: frozenset({State.READY}),
        Operation.RESUME: frozenset({State.PAUSED}),
        Operation.RESTART: frozenset({State.IDLE, State.READY, State.PAUSED, State.DIED, State.FAILED}),
    }
)

_REMEDY: Mapping[State, str] = MappingProxyType(
    {
        State.IDLE: "start it first",
        State.STARTING: "wait until it is ready",
        State.READY: "it is running already; stop or restart it",
        State.PAUSED: "resume it first",
        State.STOPPING: "wait until its graceful stop ends, or kill it",
        State.FAILED: "start it again",
        State.DIED: "start it again",
    }
)


def check(name: str, operation: Operation, state: State) -> None:
    """Raise `NodeBusy` when the table does not allow the operation."""
    if state not in ALLOWED[operation]:
        raise NodeBusy(f"{name}: cannot {operation} while {state}; try: {_REMEDY[state]}")
