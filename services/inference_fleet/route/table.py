"""The tunnels this replica holds: one seat a node, the newest claim sits, and the one before leaves as it deserves.

| the newcomer's boot | the session before it                                                                  |
|---------------------|----------------------------------------------------------------------------------------|
| the same            | go-away: no new streams, running ones finish within `drain_wait_s`, then it is closed   |
| another             | closed at once, counted and logged: two processes show one node's credential           |

Whoever accepted a tunnel calls `hold` and so owns the session's whole life; the table starts no task of its
own, it only tells a holder to retire.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from inference_fleet.settings import Deadline
from inference_fleet.tunnel import part

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from inference_fleet.tunnel import Ending, Session

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class HeldSession:
    """One accepted tunnel; `claimed_at` is monotonic, `credential_version` what its dial was admitted with."""

    session: Session
    epoch: int
    boot_id: str
    credential_version: int
    claimed_at: float


class _Seat:
    """A session and what its holder is to do with it; being cut overrides draining."""

    def __init__(self, node_id: str, held: HeldSession) -> None:
        self.node_id = node_id
        self.held = held
        self.drain = asyncio.Event()
        self.cut = asyncio.Event()


class SessionTable:
    """Who sits where, on this replica alone; all of it on one event loop."""

    def __init__(self, *, drain_wait_s: float, on_conflict: Callable[[], object] = lambda: None) -> None:
        self._drain_wait_s = drain_wait_s
        self._on_conflict = on_conflict
        self._seats: dict[str, _Seat] = {}
        self._running: set[_Seat] = set()
        self._closing = False

    async def hold(self, node_id: str, held: HeldSession) -> Ending:
        """Seat a session, drive it to its end, and clear the seat; returns why it ended.

        Cancelling the holder aborts the session.
        """
        seat = _Seat(node_id, held)
        self._running.add(seat)
        if self._closing:
            seat.cut.set()  # it was admitted a moment before this replica began to leave
        else:
            self._take(seat)
        try:
            async with asyncio.TaskGroup() as group:
                told = [group.create_task(self._drain(seat)), group.create_task(self._close(seat))]
                try:
                    return await held.session.run()
                finally:
                    for task in told:
                        task.cancel()
        finally:
            self._running.discard(seat)
            if self._seats.get(node_id) is seat:
                del self._seats[node_id]

    def get(self, node_id: str) -> HeldSession | None:
        """The session new streams of a node go through here, or None when none here takes any."""
        seat = self._seats.get(node_id)
        return seat.held if seat is not None and seat.held.session.connected else None

    def held(self) -> Mapping[str, int]:
        """Every seated node with its epoch: what membership re-asserts each tick."""
        return {node_id: seat.held.epoch for node_id, seat in self._seats.items()}

    def lost(self, node_id: str, epoch: int) -> None:
        """The epoch moved on elsewhere: this replica's session of the older epoch is closed."""
        seat = self._seats.get(node_id)
        if seat is not None and seat.held.epoch == epoch:
            _log.warning(
                "closing the tunnel of node %s: its epoch %d was superseded elsewhere", node_id, epoch
            )
            seat.cut.set()

    async def cut_revoked(self, read: Callable[[Collection[str]], Awaitable[Mapping[str, int]]]) -> list[str]:
        """Close every session, draining ones too, whose credential is no longer the newest; gives the nodes.

        `read` asks the database for the versions of the nodes named; one it does not give was deregistered. A session
        that is seated while it reads is judged by the next look: what was asked before it came says nothing of it.
        """
        judged = list(self._running)
        if not judged:
            return []
        versions = await read({seat.node_id for seat in judged})
        revoked = [
            seat
            for seat in judged
            if seat in self._running and versions.get(seat.node_id) != seat.held.credential_version
        ]
        for seat in revoked:
            _log.warning("closing a tunnel of node %s: its credential was replaced or revoked", seat.node_id)
            seat.cut.set()
        return [seat.node_id for seat in revoked]

    async def go_away(self, reason: str) -> bool:
        """Tell every worker to dial elsewhere and wait for what runs; True when all of it finished in time."""
        self._closing = True
        deadline = Deadline.after(self._drain_wait_s)
        leaving = [seat.held.session for seat in self._running]
        for session in leaving:
            session.go_away(reason)
        return await part(leaving, deadline)

    @property
    def closing(self) -> bool:
        """Whether this replica has said go-away and seats nobody any more."""
        return self._closing

    @property
    def sessions(self) -> list[Session]:
        """Every live session, seated or still draining."""
        return [seat.held.session for seat in self._running]

    def _take(self, seat: _Seat) -> None:
        node_id = seat.node_id
        before = self._seats.get(node_id)
        if before is not None and before.held.epoch > seat.held.epoch:
            seat.cut.set()  # a newer claim sits already; the newcomer was overtaken on its way here
            return
        self._seats[node_id] = seat
        if before is None:
            return
        if before.held.boot_id == seat.held.boot_id:
            _log.info(
                "node %s dialled again: epoch %d drains, %d takes over",
                node_id,
                before.held.epoch,
                seat.held.epoch,
            )
            before.drain.set()
            return
        self._on_conflict()
        _log.warning(
            "two processes show the credential of node %s: boot %s (epoch %d) takes it from boot %s (epoch %d); "
            "try: stop one of them, or give it a node name and credential of its own",
            node_id,
            seat.held.boot_id,
            seat.held.epoch,
            before.held.boot_id,
            before.held.epoch,
        )
        before.cut.set()

    async def _drain(self, seat: _Seat) -> None:
        await seat.drain.wait()
        seat.held.session.go_away("superseded by a newer session of the same worker")
        await seat.held.session.drained(Deadline.after(self._drain_wait_s))
        seat.cut.set()

    @staticmethod
    async def _close(seat: _Seat) -> None:
        await seat.cut.wait()
        await seat.held.session.close()
