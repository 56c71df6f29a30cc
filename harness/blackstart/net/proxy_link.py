"""A spec's view of a link: the road to one server, which can be broken without touching the server."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from blackstart.core.deadline import Looks, seconds
from blackstart.core.shape import CLEAR, Shape
from blackstart.net.proxy import Mode
from blackstart.net.proxy_child import HOST, ProxyChild
from blackstart.net.proxy_control import ControlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blackstart.process import Spawner
    from blackstart.record import Run

_LOOK_EVERY_S = 0.002


@dataclass(frozen=True, kw_only=True)
class LineStatus:
    """One direction: how slow it is, how many bytes have left it, how many are under way."""

    shape: Shape
    passed: int
    held: int


@dataclass(frozen=True, kw_only=True)
class Passage:
    """What one direction did to a probe's bytes, each time from the sender's write to the receiver's read."""

    byte_s: float
    train_bytes: int
    train_s: float


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What the link measured of itself. `up` is towards the target."""

    up: Passage
    down: Passage

    @property
    def round_trip_s(self) -> float:
        """A byte there and a byte back."""
        return self.up.byte_s + self.down.byte_s


@dataclass(frozen=True, kw_only=True)
class LinkStatus:
    """What a link does now and has done since it started."""

    mode: Mode
    live: int  # connections going through at this moment
    passed: int
    swallowed: int
    reset: int
    failed: int  # the target refused
    up: LineStatus  # towards the target
    down: LineStatus

    @classmethod
    def from_wire(cls, told: Mapping[str, Any]) -> Self:
        """What the child answered."""
        lines = {
            name: LineStatus(
                shape=Shape.from_wire(line["shape"]), passed=int(line["passed"]), held=int(line["held"])
            )
            for name, line in told["lines"].items()
        }
        return cls(
            mode=Mode(told["mode"]),
            live=int(told["live"]),
            up=lines["up"],
            down=lines["down"],
            **told["counts"],
        )


class Link(ProxyChild):
    """Connections to `address` reach `target_port`, until told otherwise.

    | call          | new connections            | live connections                          |
    |---------------|----------------------------|-------------------------------------------|
    | `refuse()`    | refused by the kernel       | reset                                     |
    | `blackhole()` | accepted, never answered    | stalled, not closed                        |
    | `reset()`     | accepted, then reset        | reset                                     |
    | `cut()`       | as before                   | reset                                     |
    | `heal()`      | pass                        | stalled ones move again                    |
    | `slow(...)`   | are delayed and paced       | the same, with what is under way           |

    `slow` is apart from the others: a healed link is as slow as it was told to be, and `slow(up=CLEAR, down=CLEAR)` ends it.
    Bytes, ends of file and ends of connections are slow; making a connection is not.
    """

    module = "blackstart.net.proxy"

    def __init__(
        self,
        spawner: Spawner,
        run: Run,
        *,
        target_port: int,
        target_host: str = HOST,
        node: str = "link",
        spec: str | None = None,
        start_s: float = 30.0,
        settle_s: float = 5.0,
    ) -> None:
        self._target = (target_host, target_port)
        self._settle_s = settle_s
        self._mode = Mode.PASS
        self._shapes = {"up": CLEAR, "down": CLEAR}
        super().__init__(spawner, run, node=node, spec=spec, start_s=start_s, ports=None)

    def refuse(self) -> None:
        """As if nobody listened there."""
        self._become(Mode.REFUSE)
        self.cut()

    def blackhole(self) -> None:
        """As if the network swallowed everything."""
        self._become(Mode.BLACKHOLE)
        self.control.command("stall")

    def reset(self) -> None:
        """As if a firewall tore everything."""
        self._become(Mode.RESET)
        self.cut()

    def cut(self) -> int:
        """Tear what is live now; how many there were."""
        return int(self.control.command("cut")["count"])

    def heal(self) -> None:
        """Pass again."""
        self._become(Mode.PASS)
        self.control.command("resume")

    def slow(self, *, up: Shape | None = None, down: Shape | None = None) -> None:
        """Delay and pace what goes towards the target (`up`) and back (`down`); a direction not named stays as it is.

        All connections share a direction's rate. The sender of what finds no room waits.
        """
        told = {name: shape for name, shape in (("up", up), ("down", down)) if shape is not None}
        self.control.command("shape", shapes={name: shape.to_wire() for name, shape in told.items()})
        self._shapes |= told

    def probe(self, *, within_s: float) -> Probe:
        """Have it measure what it does to bytes; takes what the delays and a tenth of a second of each rate take."""
        seconds("within_s", within_s)
        number = self.control.command("probe", within_s=within_s)["number"]
        for turn in _looks(within_s + self._settle_s):
            if (seen := self.control.command("probed", number=number)["seen"]) is not None:
                break
            if turn.over:
                raise ControlError(f"{self.node}: its probe was not over within {within_s:g} s; try: its log")
        if "failed" in seen:
            raise ControlError(f"{self.node}: its probe failed: {seen['failed']}; try: a longer within_s")
        return Probe(up=Passage(**seen["up"]), down=Passage(**seen["down"]))

    def status(self) -> LinkStatus:
        """What it does and did."""
        return LinkStatus.from_wire(self.control.command("status"))

    def _become(self, mode: Mode) -> None:
        self.control.command("mode", mode=mode.value)
        for turn in _looks(self._settle_s):
            if self.status().mode is mode:
                break
            if turn.over:
                raise ControlError(
                    f"{self.node}: did not become {mode.value} within {self._settle_s:g} s; try: its log"
                )
        self._mode = mode

    def _arguments(self) -> Sequence[str]:
        return ("--target-host", self._target[0], "--target-port", str(self._target[1]))

    def _started(self) -> None:
        if not all(shape.is_clear for shape in self._shapes.values()):
            self.slow(**self._shapes)
        if self._mode is not Mode.PASS:
            self._become(self._mode)


def _looks(within_s: float) -> Looks:
    return Looks(
        until=time.monotonic() + within_s, every_s=_LOOK_EVERY_S, clock=time.monotonic, sleep=time.sleep
    )
