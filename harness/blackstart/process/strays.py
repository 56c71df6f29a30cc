"""Which processes are ours, although they left their group: by tag in their environment, by session, by working folder.

| way            | finds                                                      | why it is no stranger                     |
|----------------|------------------------------------------------------------|-------------------------------------------|
| tag            | all that inherited the environment, sessions of their own too | the run id is random                   |
| group, session | those whose environment was wiped                          | the number is taken while a member lives, |
|                |                                                            | and its leader, if alive, must be ours    |
| working folder | Postgres's children, which overwrite their environment     | started later, and on no terminal         |
"""

from __future__ import annotations

import os
import select
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blackstart.process.procfs import (
    RUN_TAG,
    SPAWN_TAG,
    USER_TAG,
    Identity,
    Stat,
    cwd_of,
    raw_environ,
    read_stat,
    scan,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


@dataclass(frozen=True, kw_only=True)
class Sought:
    """Whom to look for. Tags narrow each other; leaders and folders add to them. `spare` is never found."""

    run: str | None = None
    user: int | None = None
    spawn: str | None = None
    leaders: tuple[Identity, ...] = ()
    folders: tuple[tuple[str, int], ...] = ()
    """Working folders, each with the start time from which on a process in it is ours."""
    since: int = 0
    """Start time before which nobody is ours."""
    spare: frozenset[int] = frozenset()

    def tags(self) -> tuple[bytes, ...]:
        """What must stand in an environment, all of it."""
        named = ((RUN_TAG, self.run), (USER_TAG, self.user), (SPAWN_TAG, self.spawn))
        return tuple(f"\0{name}={value}\0".encode() for name, value in named if value is not None)


def find(sought: Sought, among: Iterable[Stat] | None = None) -> list[Stat]:
    """Those of `among` (everybody) that are sought."""
    stats = list(scan() if among is None else among)
    tags = sought.tags()
    numbers = _numbers_still_ours(sought.leaders)
    spare = sought.spare | {os.getpid()}
    return [
        stat
        for stat in stats
        if stat.pid not in spare
        and stat.started >= sought.since
        and (
            stat.group in numbers
            or stat.session in numbers
            or (tags and _tagged(stat.pid, tags))
            or (sought.folders and _within(stat, sought.folders))
        )
    ]


def signal_all(found: Iterable[Stat], number: int) -> int:
    """Signal each through a pidfd, its identity checked once the pidfd is held. Returns how many were reached."""
    reached = 0
    for stat in found:
        if send(Identity(stat.pid, stat.started), number):
            reached += 1
    return reached


def send(identity: Identity, number: int) -> bool:
    """Signal exactly this process; false when it is gone, though its number may belong to somebody else by now."""
    try:
        pidfd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return False
    try:
        now = read_stat(identity.pid)
        if now is None or now.started != identity.started:
            return False
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


def end_all(sought: Sought, *, within: float) -> list[Stat]:
    """SIGKILL all that are sought, and those they start meanwhile, until a look finds none. Returns who outlived it."""
    deadline = time.monotonic() + within
    while True:
        found = find(sought)
        if not found:
            return []
        signal_all(found, signal.SIGKILL)
        if not wait_gone(found, until=deadline):
            return find(sought)


def wait_gone(found: Collection[Stat], *, until: float) -> bool:
    """Whether all of these end before the monotonic time `until`; waits on the processes themselves."""
    for stat in found:
        try:
            pidfd = os.pidfd_open(stat.pid)
        except ProcessLookupError:
            continue
        try:
            now = read_stat(stat.pid)
            if now is None or now.started != stat.started:
                continue
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return False
        finally:
            os.close(pidfd)
    return True


def _numbers_still_ours(leaders: Iterable[Identity]) -> frozenset[int]:
    ours = set()
    for leader in leaders:
        now = read_stat(leader.pid)
        if now is None or now.started == leader.started:
            ours.add(leader.pid)
    return frozenset(ours)


def _tagged(pid: int, tags: tuple[bytes, ...]) -> bool:
    environ = raw_environ(pid)
    return environ is not None and all(tag in environ for tag in tags)


def _within(stat: Stat, folders: tuple[tuple[str, int], ...]) -> bool:
    if stat.terminal:
        return False  # a person's shell: whatever we spawn has no terminal
    cwd = cwd_of(stat.pid)
    return cwd is not None and any(
        stat.started >= since and (cwd == folder or cwd.startswith(folder + "/")) for folder, since in folders
    )
