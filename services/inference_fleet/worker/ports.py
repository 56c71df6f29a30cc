"""The loopback ports of a worker's model processes: one block of its own, each port tried before it is given."""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from inference_fleet.settings.loopback import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("blackstart.worker")
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortsExhausted(OSError):
    """No port of the block is free."""


@dataclass
class PortBlock:
    """Ports `base` to `last`; a port given back is the last to be given again."""

    base: int
    last: int
    _given: set[int] = field(default_factory=set)
    _next: int = 0

    def take(self) -> int:
        """A port nobody listens on, held for the caller until `give_back`."""
        for port in self._in_turn():
            if port not in self._given and is_free(port):
                self._given.add(port)
                self._next = port + 1 - self.base
                return port
        held = f"{len(self._given)} by this worker's own models, the others by somebody else"
        raise PortsExhausted(
            f"no free port from {self.base} to {self.last} ({held}); "
            "try: a larger BLACKSTART_PORT_MAX, or another BLACKSTART_PORT_BASE"
        )

    def give_back(self, port: int) -> None:
        """The port's process is gone."""
        self._given.discard(port)

    def _in_turn(self) -> Iterator[int]:
        size = self.last - self.base + 1
        return (self.base + (self._next + step) % size for step in range(size))


def is_free(port: int) -> bool:
    """Whether a process could listen on this port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            # two sockets may be bound to one port while neither listens, so only listening tells
            probe.listen(1)
        except OSError:
            return False
    return True


def listens(pid: int, port: int) -> bool:
    """Whether the process, or one it started, is who listens on a port: an answer there may be a stranger's."""
    try:
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        return any(
            connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
            for process in family
            for connection in process.net_connections(kind="tcp")
        )
    except psutil.Error:
        return False


def warn_of_ephemeral_overlap(base: int, last: int) -> None:
    """Say so when the kernel may hand one of the block's ports to an outgoing connection."""
    try:
        low, high = (int(word) for word in _RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return  # no such file outside Linux: nothing to compare with
    if base <= high and last >= low:
        _log.warning(
            "ports %d to %d overlap the ephemeral range (%d to %d): outgoing connections may take them; "
            "try: a BLACKSTART_PORT_BASE below %d",
            base,
            last,
            low,
            high,
            low,
        )
