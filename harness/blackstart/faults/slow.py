"""A link made slow: one-way delay and rate, seen by what the link itself measures.

| what is measured of a direction         | can never be                          | so when it is             | and when it is far beyond               |
|-----------------------------------------|---------------------------------------|---------------------------|-----------------------------------------|
| how long one byte takes                 | less than the delay                   | the delay is not in       | the machine stands still: nobody can say |
| bytes a second of a train, past the delay | more than the rate                  | the rate is not in        | the same                                |

Being late is what a busy machine does to every link, so only the impossible is a mismatch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackstart.core.fault import Evidence, Finding
from blackstart.core.shape import CLEAR, Shape
from blackstart.faults.fault import Fault
from blackstart.net.proxy_control import ControlError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from blackstart.net.proxy_link import Link, Passage

PROBE_S = 20.0
_LATE_SHARE = 1.0  # of the delay
_LATE_S = 0.1
_SLOW_SHARE = 0.25  # of the rate, when others use the line too


class Slowed(Fault):
    """A link's directions get these shapes; lifting gives them back what they had."""

    family = "network"

    def __init__(
        self, link: Link, *, up: Shape = CLEAR, down: Shape = CLEAR, probe_s: float = PROBE_S
    ) -> None:
        """`up` is towards the target. `probe_s` bounds one look: slow rates and long delays need time to be seen."""
        if up.is_clear and down.is_clear:
            raise ValueError(
                "up=clear, down=clear: neither delays nor paces, so nothing could be seen;"
                " try: up=Shape(delay_s=0.025)"
            )
        self._link = link
        self._wanted = {"up": up, "down": down}
        self._before = {"up": CLEAR, "down": CLEAR}
        self._probe_s = probe_s

    def describe(self) -> str:
        """`link slowed: up 25 ms, 25000000 B/s, down clear`."""
        return f"{self._link.node} slowed: up {self._wanted['up']}, down {self._wanted['down']}"

    def inject(self) -> None:
        """From here on, for what is under way too."""
        status = self._link.status()
        self._before = {"up": status.up.shape, "down": status.down.shape}
        self._link.slow(**self._wanted)

    def confirm(self) -> Evidence:
        """The link measures the delay and the rate that were asked for."""
        return self._look(lambda name, passage: judge(name, self._wanted[name], passage))

    def lift(self) -> None:
        """As slow as before."""
        self._link.slow(**self._before)

    def confirm_lifted(self) -> Evidence:
        """The link measures something that these delays and rates could not give."""
        status = self._link.status()
        shapes = {"up": status.up.shape, "down": status.down.shape}
        if shapes != self._before:
            return Evidence(Finding.MISMATCH, f"the link is still {shapes['up']} up, {shapes['down']} down")
        return self._look(
            lambda name, passage: judge_lifted(name, self._wanted[name], self._before[name], passage)
        )

    def _look(self, judged: Callable[[str, Passage], Evidence]) -> Evidence:
        try:
            probe = self._link.probe(within_s=self._probe_s)
        except ControlError as error:
            return Evidence(Finding.INCONCLUSIVE, str(error))
        return together([judged("up", probe.up), judged("down", probe.down)])


def judge(name: str, wanted: Shape, passage: Passage) -> Evidence:
    """Whether one direction is as slow as it should be."""
    seen = f"{name}: {_told(wanted, passage)}, {wanted} was wanted"
    rate = _rate(wanted, passage)
    if passage.byte_s < wanted.delay_s or (wanted.bytes_per_s is not None and rate > wanted.bytes_per_s):
        return Evidence(Finding.MISMATCH, seen)
    late = passage.byte_s > wanted.delay_s * (1 + _LATE_SHARE) + _LATE_S
    starved = wanted.bytes_per_s is not None and rate < wanted.bytes_per_s * _SLOW_SHARE
    return Evidence(Finding.INCONCLUSIVE if late or starved else Finding.CONFIRMED, seen)


def judge_lifted(name: str, wanted: Shape, before: Shape, passage: Passage) -> Evidence:
    """Whether one direction is visibly not that slow any more; one that was as slow before shows nothing."""
    seen = f"{name}: {_told(before, passage)}, no longer {wanted}"
    delayed = wanted.delay_s > before.delay_s and passage.byte_s >= wanted.delay_s
    paced = (
        wanted.bytes_per_s is not None
        and wanted.bytes_per_s < (before.bytes_per_s or float("inf"))
        and _rate(before, passage) <= wanted.bytes_per_s
    )
    return Evidence(Finding.INCONCLUSIVE if delayed or paced else Finding.CONFIRMED, seen)


def together(looks: Iterable[Evidence]) -> Evidence:
    """Both directions: one mismatch decides, then one look that showed nothing."""
    looks = list(looks)
    seen = "; ".join(look.seen for look in looks)
    for finding in (Finding.MISMATCH, Finding.INCONCLUSIVE):
        if any(look.finding is finding for look in looks):
            return Evidence(finding, seen)
    return Evidence(Finding.CONFIRMED, seen)


def _rate(shape: Shape, passage: Passage) -> float:
    """Bytes a second of the train, its delay taken off: never more than the rate while that is in force."""
    took_s = passage.train_s - shape.delay_s
    return passage.train_bytes / took_s if took_s > 0 else float("inf")


def _told(shape: Shape, passage: Passage) -> str:
    return f"a byte took {passage.byte_s * 1000:.1f} ms, {passage.train_bytes} came at {_rate(shape, passage):.0f} B/s"
