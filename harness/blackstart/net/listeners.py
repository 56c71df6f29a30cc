"""After a start the listener must be our own child: a stranger on the port would answer every probe and prove nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from blackstart.process.procfs import read_stat
from blackstart.process.sockets import Holder, holders

if TYPE_CHECKING:
    from collections.abc import Iterable

    from blackstart.process.procfs import Stat


class StrangerListens(AssertionError):
    """The port is held by a process that is not ours, or by nobody."""


class Family(Protocol):
    """A process with what came of it: a `Handle`."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def members(self) -> Iterable[Stat]:
        """Itself and what came of it."""
        ...


def listener_of(port: int) -> Holder | None:
    """Who listens on the port, on any address; `None` if nobody does."""
    found = holders(port)
    return found[0] if found else None


def assert_listener(port: int, handle: Family) -> None:
    """Raise `StrangerListens` unless the port's listener is the handle's process or came of it."""
    found = holders(port)
    if not found:
        raise StrangerListens(f"port {port}: nobody listens, {handle!r} should; try: wait until it is ready")
    ours = {stat.pid for stat in handle.members()}
    for holder in found:
        if holder.pid not in ours and not _descends(holder.pid, handle.pid):
            raise StrangerListens(f"port {port}: held by {holder}, not by {handle!r}; try: end that process")


def name_holder(port: int) -> str:
    """For the text of an EADDRINUSE: who has the port."""
    holder = listener_of(port)
    return f"port {port} is held by {holder}" if holder else f"port {port} is held by nobody that listens"


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        stat = read_stat(pid)
        if stat is None:
            return False
        pid = stat.parent
    return False
