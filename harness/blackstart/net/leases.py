"""Ports are leased across every process of the host: contiguous, probed, below the range outgoing connections take from.

One lock file for the host stands for the port space: byte N is port N, and a lease is an open-file-description lock on
its bytes. The kernel grants a whole block or nothing, tells two leases of one process apart, and lets go of all of it
when the last descriptor closes, so a killed process frees its ports by itself. The file is never unlinked: a second
file of the same name would lock nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import struct
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from blackstart.process.errors import HarnessFailure
from blackstart.process.sockets import holders

if TYPE_CHECKING:
    from types import TracebackType

    from blackstart.record import Journal

HOST = "127.0.0.1"
LOWEST_PORT = 10240
_HIGHEST_PORT = 65535
_LONGEST_BLOCK = 1024
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_OFD_LOCK = "hhqqi4x"  # struct flock: type, whence, start, length, pid
_STRIDE = 7919  # spreads the starting points of processes whose pids are neighbours


class NoPorts(HarnessFailure):
    """No block of that length is free; the text says who listens on the first that was taken."""


class LeaseFolderError(HarnessFailure):
    """The folder of the lock file is not ours alone."""


@dataclass
class PortLease:
    """So many contiguous ports on 127.0.0.1, ours until `release` or the end of this process."""

    ports: tuple[int, ...]
    purpose: str
    host: str = HOST
    _file: int = -1

    def __enter__(self) -> Self:
        """The lease itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release it."""
        self.release()

    @property
    def held(self) -> bool:
        """Whether it is still ours."""
        return self._file >= 0

    def release(self) -> None:
        """Give the ports back; a second time is fine."""
        with _GUARD:
            file, self._file = self._file, -1
            if file >= 0:
                os.close(file)
                _HELD.pop(self.ports[0], None)


_GUARD = threading.Lock()
_HELD: dict[int, str] = {}


def held_leases() -> dict[int, str]:
    """The leases of this process, by their first port (no two have the same) and in words: what a leak sentinel compares."""
    with _GUARD:
        return dict(_HELD)


def lease_ports(count: int, *, run: str, purpose: str, journal: Journal | None = None) -> PortLease:
    """Lease `count` contiguous ports, noted in the journal if one is given.

    Raises:
        NoPorts: no such block is free.
    """
    if not 1 <= count <= _LONGEST_BLOCK:
        raise ValueError(f"count={count}: a lease is of 1 to {_LONGEST_BLOCK} ports; try: count=1")
    ports = usable_range(*local_port_range())
    file = os.open(_lock_path(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    busy: list[int] = []
    try:
        first = _find_block(file, ports, count, busy)
    except BaseException:
        os.close(file)
        raise
    if first is None:
        os.close(file)
        raise NoPorts(
            f"run {run}: no {count} contiguous ports for {purpose} are free in {ports.start} to {ports.stop - 1}"
            f" ({_who(busy)}); try: end other runs, or a higher start in {_RANGE_FILE}"
        )
    lease = PortLease(tuple(range(first, first + count)), purpose, _file=file)
    with _GUARD:
        _HELD[first] = f"{count} from {first} for {purpose}"
    if journal is not None:
        journal.write("lease", first=first, count=count, purpose=purpose)
    return lease


def usable_range(lowest_ephemeral: int, highest_ephemeral: int) -> range:
    """The ports that no outgoing connection is given: below the ephemeral range, or above it where below is no room."""
    if lowest_ephemeral - LOWEST_PORT >= _LONGEST_BLOCK:
        return range(LOWEST_PORT, lowest_ephemeral)
    lowest_above = max(LOWEST_PORT, highest_ephemeral + 1)
    if _HIGHEST_PORT - lowest_above >= _LONGEST_BLOCK:
        return range(lowest_above, _HIGHEST_PORT + 1)
    raise NoPorts(
        f"the ephemeral range {lowest_ephemeral} to {highest_ephemeral} leaves no {_LONGEST_BLOCK} ports below or above it;"
        f" try: sysctl net.ipv4.ip_local_port_range='32768 60999'"
    )


def local_port_range() -> tuple[int, int]:
    """The range the kernel takes the ports of outgoing connections from."""
    lowest, highest = _RANGE_FILE.read_text(encoding="ascii").split()
    return int(lowest), int(highest)


def _find_block(file: int, ports: range, count: int, busy: list[int]) -> int | None:
    span = len(ports) - count + 1
    start = os.getpid() * _STRIDE % span
    offset = 0
    while offset < span:
        first = ports.start + (start + offset) % span
        if not _lock(file, first, count):
            offset += max(1, _end_of_lock(file, first, count) - first)
            continue
        taken = next((port for port in reversed(range(first, first + count)) if not _bindable(port)), None)
        if taken is None:
            return first
        _unlock(file, first, count)
        busy.append(taken)
        offset += taken - first + 1
    return None


def _who(busy: list[int]) -> str:
    if not busy:
        return "all are leased by other runs"
    held = ", ".join(str(holder) for holder in holders(busy[0])) or "a socket that does not listen"
    return f"{len(busy)} are bound, {busy[0]} by {held}"


def _lock(file: int, first: int, count: int) -> bool:
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _flock(fcntl.F_WRLCK, first, count))
    except OSError as wrong:
        if wrong.errno in {errno.EAGAIN, errno.EACCES}:
            return False
        raise
    return True


def _end_of_lock(file: int, first: int, count: int) -> int:
    """The first port after the lease that is in the way; 0 if it has gone meanwhile."""
    found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, _flock(fcntl.F_WRLCK, first, count))
    kind, _whence, start, length, _pid = struct.unpack(_OFD_LOCK, found)
    return 0 if kind == fcntl.F_UNLCK else start + length


def _unlock(file: int, first: int, count: int) -> None:
    fcntl.fcntl(file, fcntl.F_OFD_SETLK, _flock(fcntl.F_UNLCK, first, count))


def _flock(kind: int, first: int, count: int) -> bytes:
    return struct.pack(_OFD_LOCK, kind, os.SEEK_SET, first, count, 0)


def _bindable(port: int) -> bool:
    """Stricter than a server: a port with connections in TIME_WAIT is left alone, there are others."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((HOST, port))
        except OSError as wrong:
            if wrong.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
    return True


def _lock_path() -> Path:
    folder = Path(tempfile.gettempdir()) / f"blackstart-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise LeaseFolderError(
            f"{folder}: is not a folder of uid {os.getuid()} with mode 0700 (uid {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):o}); try: remove it"
        )
    return folder / "ports.lock"
