"""Who listens on a TCP port, read from the kernel's tables: the port names an inode, and the inode's owner holds it open."""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from blackstart.process.procfs import cmdline_of, pids

HOST = "127.0.0.1"
_LISTEN = b"0A"


@dataclass(frozen=True)
class Holder:
    """A process that listens on a port. `pid` is 0 where the owner may not be looked up (another user's process)."""

    pid: int
    cmdline: str

    def __str__(self) -> str:
        """`pid 4711 (python -m http.server)`."""
        return f"pid {self.pid} ({self.cmdline})" if self.pid else "a process that may not be looked up"


def is_free(port: int, *, host: str = HOST) -> bool:
    """Whether a server could bind the port now. Connections in TIME_WAIT do not count: servers reuse addresses."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))  # not listen: a client must never reach the probe
        except OSError as wrong:
            if wrong.errno == errno.EADDRINUSE:
                return False
            raise
    return True


def holders(port: int) -> list[Holder]:
    """Every process that listens on the port, on any address of either family."""
    inodes = _listening_inodes(port)
    if not inodes:
        return []
    wanted = {f"socket:[{inode}]" for inode in inodes}
    found = [Holder(pid, cmdline_of(pid)) for pid in pids() if _holds(pid, wanted)]
    return found or [Holder(0, "")]


def _listening_inodes(port: int) -> set[str]:
    suffix = f":{port:04X}".encode("ascii")
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/net/{table}").read_bytes().splitlines()[1:]
        except FileNotFoundError:
            continue  # a kernel without IPv6
        for line in lines:
            fields = line.split()
            if fields[1].endswith(suffix) and fields[3] == _LISTEN:
                inodes.add(fields[9].decode("ascii"))
    return inodes


def _holds(pid: int, wanted: set[str]) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if str(Path(entry.path).readlink()) in wanted:
                        return True
                except OSError:
                    continue  # closed between the listing and the look
    except OSError:
        return False  # gone, or another user's
    return False
