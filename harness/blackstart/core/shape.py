"""How slow one direction of a link is: values checked once, so that no schedule meets a rate it cannot keep.

| field         | unit                                        | unset               | allowed                       |
|---------------|---------------------------------------------|---------------------|-------------------------------|
| `delay_s`     | seconds, one way                            | 0: none             | 0 to 60                       |
| `bytes_per_s` | whole bytes a second, all connections share | `None`: no limit    | 1 to 10^12                    |

Delay takes nothing off the rate: `in_flight_bytes` may be under way at once, which is what a link of that rate and delay
holds (their product) and a queue in front of it; whoever sends more than that is made to wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_DELAY_S = 60.0
MOST_BYTES_PER_S = 10**12
MOST_IN_FLIGHT = 256 * 1024 * 1024
UNRATED_IN_FLIGHT = 64 * 1024 * 1024
_QUEUE_S = 0.02
_SHORTEST_QUEUE = 16 * 1024
_LONGEST_QUEUE = 1024 * 1024
_BYTES_OF_A_MEGABIT = 125_000
_FIELDS = frozenset({"delay_s", "bytes_per_s"})


class BadShape(ValueError):
    """A delay or a rate that no link can have; the text names the argument, the value and what is allowed."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One direction of a link; `Shape()` is one that passes everything at once."""

    delay_s: float = 0.0
    bytes_per_s: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, and a product that could not be held in memory."""
        delay_s = _number("delay_s", self.delay_s, remedy="delay_s=0.025")
        if not 0 <= delay_s <= LONGEST_DELAY_S:
            raise BadShape(
                f"delay_s={self.delay_s!r}: a delay is 0 to {LONGEST_DELAY_S:g} seconds; try: delay_s=0.025"
            )
        object.__setattr__(self, "delay_s", delay_s)
        if self.bytes_per_s is None:
            return
        rate = _number("bytes_per_s", self.bytes_per_s, remedy="bytes_per_s=25_000_000")
        if not 1 <= rate <= MOST_BYTES_PER_S or rate != int(rate):
            raise BadShape(
                f"bytes_per_s={self.bytes_per_s!r}: a rate is 1 to {MOST_BYTES_PER_S:.0e} whole bytes a second;"
                " try: None for no limit"
            )
        object.__setattr__(self, "bytes_per_s", int(rate))
        if self.in_flight_bytes > MOST_IN_FLIGHT:
            raise BadShape(
                f"bytes_per_s={self.bytes_per_s} with delay_s={delay_s:g}: {self.in_flight_bytes} bytes would be under way"
                f" at once, {MOST_IN_FLIGHT} may be; try: bytes_per_s={int((MOST_IN_FLIGHT - _LONGEST_QUEUE) / delay_s)}"
            )

    @classmethod
    def mbit(cls, mbit_per_s: float, *, delay_s: float = 0.0) -> Self:
        """The rate as networks are sold: `Shape.mbit(200, delay_s=0.025)` passes 25,000,000 bytes a second."""
        rate = _number("mbit_per_s", mbit_per_s, remedy="mbit_per_s=200") * _BYTES_OF_A_MEGABIT
        if not 1 <= rate <= MOST_BYTES_PER_S:
            raise BadShape(
                f"mbit_per_s={mbit_per_s!r}: a rate is {1 / _BYTES_OF_A_MEGABIT:g} to"
                f" {MOST_BYTES_PER_S / _BYTES_OF_A_MEGABIT:g} megabit a second; try: mbit_per_s=200"
            )
        return cls(delay_s=delay_s, bytes_per_s=round(rate))

    @property
    def is_clear(self) -> bool:
        """Whether it neither delays nor paces."""
        return not self.delay_s and self.bytes_per_s is None

    @property
    def queue_bytes(self) -> int:
        """How much of one connection may wait in front of the rate: 20 ms of it, 16 KiB at least, 1 MiB at most."""
        if self.bytes_per_s is None:
            return 0
        return min(_LONGEST_QUEUE, max(_SHORTEST_QUEUE, int(self.bytes_per_s * _QUEUE_S)))

    @property
    def in_flight_bytes(self) -> int:
        """How much of one connection may be under way: rate times delay and the queue; 64 MiB without a rate."""
        if self.bytes_per_s is None:
            return UNRATED_IN_FLIGHT if self.delay_s else 0
        return math.ceil(self.bytes_per_s * self.delay_s) + self.queue_bytes

    def to_wire(self) -> dict[str, Any]:
        """What goes through the control channel."""
        return {"delay_s": self.delay_s, "bytes_per_s": self.bytes_per_s}

    @classmethod
    def from_wire(cls, told: Mapping[str, Any]) -> Self:
        """What came through it; `BadShape` for a field nobody knows."""
        unknown = sorted(set(told) - _FIELDS)
        if unknown:
            raise BadShape(f"{unknown[0]}: is no field of a shape; try: one of {', '.join(sorted(_FIELDS))}")
        return cls(**told)

    def __str__(self) -> str:
        """`25 ms, 25000000 B/s`, or `clear`."""
        parts = [f"{self.delay_s * 1000:g} ms"] if self.delay_s else []
        parts += [] if self.bytes_per_s is None else [f"{self.bytes_per_s} B/s"]
        return ", ".join(parts) or "clear"


def _number(name: str, value: object, *, remedy: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadShape(f"{name}={value!r}: is no finite number; try: {remedy}")
    return value


CLEAR = Shape()
