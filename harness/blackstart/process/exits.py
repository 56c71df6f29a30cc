"""How processes end, and what is known of one from its start, as facts."""

from __future__ import annotations

import signal as signals
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from blackstart.record import Identity
    from blackstart.record.ledger import Charge


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a process ended: with an exit status, or by a signal."""

    code: int | None = None
    signal: int | None = None
    core: bool = False

    def __str__(self) -> str:
        """`exit status 3`, `killed by SIGKILL`."""
        if self.signal is None:
            return f"exit status {self.code}"
        return f"killed by {signal_name(self.signal)}{' (core dumped)' if self.core else ''}"


@dataclass(frozen=True, kw_only=True)
class Death:
    """How long a kill took: until the process and its strays were dead, and until its ports were free."""

    exit: Exit
    dead_after_s: float
    ports_free_after_s: float

    @property
    def waited_for(self) -> str:
        """Which of the two came last: `death` or `ports`."""
        return "ports" if self.ports_free_after_s > self.dead_after_s else "death"


@dataclass(frozen=True, kw_only=True)
class Spawned:
    """What a spawner knows of the child it has just started."""

    node: str
    incarnation: int
    spec: str
    argv: tuple[str, ...]
    identity: Identity
    pidfd: int
    charge: Charge
    run_id: str
    ports: tuple[int, ...]
    folder: str | None


class Leased(Protocol):
    """What a port lease shows."""

    @property
    def ports(self) -> Sequence[int]:
        """Its numbers."""
        ...


def port_numbers(ports: Sequence[int] | Leased | None) -> tuple[int, ...]:
    """The numbers of a lease, or of a plain sequence."""
    if ports is None:
        return ()
    numbers: tuple[int, ...] = tuple(ports if isinstance(ports, Sequence) else ports.ports)
    for number in numbers:
        if not 0 < number < 65536:
            raise ValueError(f"ports={ports!r}: {number!r} is no port; try: numbers from 1 to 65535")
    return numbers


def signal_name(number: int) -> str:
    """`SIGKILL`; `signal 40` for one without a name."""
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"
