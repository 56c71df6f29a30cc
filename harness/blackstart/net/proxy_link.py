"""A spec's view of a link: the road to one server, which can be broken without touching the server."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blackstart.net.proxy import Mode
from blackstart.net.proxy_child import HOST, ProxyChild
from blackstart.net.proxy_control import ControlError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blackstart.process import Spawner
    from blackstart.record import Run

_LOOK_EVERY_S = 0.002


@dataclass(frozen=True, kw_only=True)
class LinkStatus:
    """What a link does now and has done since it started."""

    mode: Mode
    live: int  # connections going through at this moment
    passed: int
    swallowed: int
    reset: int
    failed: int  # the target refused


class Link(ProxyChild):
    """Connections to `address` reach `target_port`, until told otherwise.

    | call          | new connections            | live connections                          |
    |---------------|----------------------------|-------------------------------------------|
    | `refuse()`    | refused by the kernel       | reset                                     |
    | `blackhole()` | accepted, never answered    | stalled, not closed                        |
    | `reset()`     | accepted, then reset        | reset                                     |
    | `cut()`       | as before                   | reset                                     |
    | `heal()`      | pass                        | stalled ones move again                    |
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

    def status(self) -> LinkStatus:
        """What it does and did."""
        told = self.control.command("status")
        return LinkStatus(mode=Mode(told["mode"]), live=int(told["live"]), **told["counts"])

    def _become(self, mode: Mode) -> None:
        self.control.command("mode", mode=mode.value)
        deadline = time.monotonic() + self._settle_s
        while self.status().mode is not mode:
            if time.monotonic() >= deadline:
                raise ControlError(
                    f"{self.node}: did not become {mode.value} within {self._settle_s:g} s; try: its log"
                )
            time.sleep(_LOOK_EVERY_S)
        self._mode = mode

    def _arguments(self) -> Sequence[str]:
        return ("--target-host", self._target[0], "--target-port", str(self._target[1]))

    def _started(self) -> None:
        if self._mode is not Mode.PASS:
            self._become(self._mode)
