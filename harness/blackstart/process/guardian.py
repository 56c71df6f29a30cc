"""The guardian of a run: outlives everybody in it, and ends what a user leaves behind the moment that user is gone.

It sleeps in one `poll` on its listening socket, each user's connection and each user's pidfd, and wakes for these:

| wakes for                          | does                                                                        |
|------------------------------------|-----------------------------------------------------------------------------|
| a connection of our own uid        | takes `hello` from the pid the kernel names; writes the user to the ledger  |
| `admit`                            | says it is there                                                            |
| end of file or death of a user     | ends that user's charges, then strays by run and user tag                   |
| the last user's goodbye            | ends everything, the shared too, then strays by run tag; exits              |
| death of the owner without goodbye | the same at once: nobody is left who could report anything                  |
| SIGINT, SIGHUP, SIGTERM            | notes it: they are meant for the run, and the run's end is what it waits for |

Run as `python -m blackstart.process.guardian RUN_DIR OWNER_PID OWNER_STARTED READY_FD`.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from blackstart.process.ending import Ended, end_charges
from blackstart.process.strays import Sought
from blackstart.process.wire import PACKET_LIMIT, SAID, Answer, address, peer
from blackstart.record import (
    Charge,
    ChargeKind,
    Identity,
    Journal,
    Ledger,
    Run,
    identity_of,
)
from blackstart.record.ledger import owed

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_BACKLOG = 64
_SEND_WITHIN_S = 1.0
_JOIN_WITHIN_S = 60.0
_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


@dataclass
class _User:
    """One connection. Nameless until its `hello`."""

    connection: socket.socket
    pid: int
    pidfd: int
    identity: Identity | None = None
    charge: Charge | None = None
    owner: bool = False

    def close(self) -> None:
        self.connection.close()
        os.close(self.pidfd)


@dataclass
class _Guardian:
    run: Run
    owner: Identity
    journal: Journal
    ledger: Ledger
    listener: socket.socket
    owner_pidfd: int
    poll: select.poll = field(default_factory=select.poll)
    users: dict[int, _User] = field(default_factory=dict)
    endings: list[threading.Thread] = field(default_factory=list)
    owner_came: bool = False
    owner_left: bool = False

    def serve(self) -> None:
        """Until the run is over."""
        self.poll.register(self.listener, select.POLLIN)
        if self.owner_pidfd >= 0:
            self.poll.register(self.owner_pidfd, select.POLLIN)
        while not self.over:
            for descriptor in in_order(self.poll.poll(), listener=self.listener.fileno(), users=self.users):
                if descriptor == self.listener.fileno():
                    self.accept()
                elif descriptor == self.owner_pidfd:
                    self.owner_died()
                elif user := self.users.get(descriptor):
                    self.hear(user)
                else:
                    self.user_died(descriptor)

    over: bool = False

    def accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.settimeout(_SEND_WITHIN_S)
        pid, uid = peer(connection)
        try:
            if uid != os.getuid():
                raise PermissionError(f"uid {uid}")
            pidfd = os.pidfd_open(pid)
        except (OSError, ValueError) as wrong:
            self.note("mark", what="refused a connection", pid=pid, why=str(wrong))
            connection.close()
            return
        user = _User(connection, pid, pidfd)
        self.users[connection.fileno()] = user
        self.poll.register(connection, select.POLLIN)
        self.poll.register(pidfd, select.POLLIN)

    def hear(self, user: _User) -> None:
        try:
            raw = user.connection.recv(PACKET_LIMIT)
            said = SAID.decode(raw) if raw else None
        except (OSError, msgspec.DecodeError) as wrong:
            self.note("harness-failure", text=f"pid {user.pid} cannot be understood: {wrong}")
            said = None
        if said is None or said.op == "bye":
            self.leave(user, how="end of file" if said is None else "goodbye")
        elif said.op == "hello":
            self.answer(user, self.hello(user, Identity(said.pid, said.started)))
        elif user.identity is None:
            self.answer(user, Answer(ok=False, why="say hello first"))
        else:
            self.answer(user, Answer(ok=True, pid=os.getpid()))

    def hello(self, user: _User, claimed: Identity) -> Answer:
        if claimed != identity_of(user.pid):
            return Answer(ok=False, why=f"{claimed} is not who the kernel says it is (pid {user.pid})")
        user.identity = claimed
        user.owner = claimed == self.owner
        self.owner_came |= user.owner
        try:
            user.charge = self.ledger.began(self.ledger.intend(ChargeKind.USER, user=user.pid), claimed)
        except OSError as wrong:
            return Answer(ok=False, why=f"it cannot write its ledger: {wrong}")
        self.note("mark", what="user joins", pid=user.pid, owner=user.owner)
        return Answer(ok=True, pid=os.getpid())

    def answer(self, user: _User, answer: Answer) -> None:
        try:
            user.connection.send(msgspec.json.encode(answer))
        except OSError as wrong:
            self.leave(user, how=f"does not listen ({wrong})")

    def user_died(self, pidfd: int) -> None:
        for user in list(self.users.values()):
            if user.pidfd == pidfd:
                self.leave(user, how="death")

    def owner_died(self) -> None:
        self.poll.unregister(self.owner_pidfd)
        if not self.owner_left:
            self.note("mark", what="owner is dead", pid=self.owner.pid)
            self.over = True

    def leave(self, user: _User, *, how: str) -> None:
        descriptor = user.connection.fileno()
        del self.users[descriptor]
        self.poll.unregister(descriptor)
        self.poll.unregister(user.pidfd)
        user.close()
        if user.identity is None:
            return
        self.note("mark", what="user leaves", pid=user.pid, how=how, owner=user.owner)
        if user.charge is not None:
            self.write_off(user.charge, how)
        self.owner_left |= user.owner and how == "goodbye"
        if not self.users and self.owner_came:
            self.over = True
        if not self.over and all(other.pid != user.pid for other in self.users.values()):
            ending = threading.Thread(target=self.end, args=(user.pid,), name=f"end-{user.pid}")
            ending.start()
            self.endings = [*(thread for thread in self.endings if thread.is_alive()), ending]

    def end(self, user: int | None) -> None:
        """End one user's charges, or with `None` everybody's."""
        charges = self.ledger.charges()
        due = owed(charges) if user is None else owed(charges, user=user)
        spare = frozenset(other.pid for other in list(self.users.values()))
        ended = end_charges(due, sweep=Sought(run=self.run.id, user=user, spare=spare))
        self.settle(due, ended, user)

    def settle(self, due: list[Charge], ended: Ended, user: int | None) -> None:
        self.note(
            "mark",
            what="ended",
            user=user,
            charges=len(due),
            processes=ended.found,
            seconds=round(ended.seconds, 3),
        )
        for text in (*ended.survivors, *ended.failed):
            self.note("harness-failure", text=text, user=user)
        if not ended.survivors:
            for charge in due:
                self.write_off(charge, "by the guardian")

    def finish(self, guardian: Charge) -> None:
        """Everything of the run, the shared too, until a look finds nothing."""
        self.listener.close()
        for thread in self.endings:
            thread.join(_JOIN_WITHIN_S)
        self.end(None)
        for user in list(self.users.values()):
            user.close()  # from here on its spawns fail
        self.users.clear()
        self.end(None)
        self.write_off(guardian, "the run is over")

    def note(self, kind: str, **data: Any) -> None:
        """Tell the journal. A full disk must not keep anything from being ended."""
        try:
            self.journal.write(kind, **data)
        except OSError as wrong:
            _complain(wrong)

    def write_off(self, charge: Charge, reason: str) -> None:
        """Tell the ledger, under the same rule; a later run would look for it once more and find nothing."""
        try:
            self.ledger.ended(charge, reason=reason)
        except OSError as wrong:
            _complain(wrong)


def in_order(woken: Sequence[tuple[int, int]], *, listener: int, users: Collection[int]) -> list[int]:
    """What woke the guardian, in the order it is looked at: who comes, then what is said, then who has died.

    A goodbye and the death right after it may come in one turn, and it is the goodbye that counts. Who comes is let in
    before anything is closed, so that no descriptor of this turn has a new meaning.
    """
    return sorted((one for one, _ in woken), key=lambda one: (one != listener, one not in users))


def main(arguments: list[str]) -> int:
    """Detach, listen, say so, serve, end everything."""
    run = Run.attach(Path(arguments[0]))
    owner = Identity(int(arguments[1]), int(arguments[2]))
    ready = int(arguments[3])
    if os.fork():
        os._exit(0)
    os.chdir("/")
    heard: list[int] = []
    for number in _SIGNALS:
        signal.signal(number, lambda number, _: heard.append(number))
    with (
        Journal(run, writer="guardian") as journal,
        Ledger(run.dir) as ledger,
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
    ):
        listener.bind(address(run.id))
        listener.listen(_BACKLOG)
        identity = identity_of(os.getpid())
        charge = ledger.began(ledger.intend(ChargeKind.GUARDIAN, user=None), identity)
        guardian = _Guardian(run, owner, journal, ledger, listener, _open_owner(owner))
        journal.write("mark", what="guardian begins", pid=os.getpid(), owner=owner.pid)
        os.write(ready, b"ready\n")
        os.close(ready)
        try:
            guardian.over = guardian.owner_pidfd < 0
            guardian.serve()
        except BaseException as wrong:
            guardian.note("harness-failure", text=f"the guardian failed: {wrong!r}")
            raise
        finally:
            guardian.finish(charge)
            guardian.note("mark", what="guardian ends", signals=heard)
    return 0


def _complain(wrong: OSError) -> None:
    with contextlib.suppress(OSError):  # its log lies on the same disk
        sys.stderr.write(f"{wrong}\n")


def _open_owner(owner: Identity) -> int:
    with contextlib.suppress(ProcessLookupError):
        pidfd = os.pidfd_open(owner.pid)
        if identity_of(owner.pid) == owner:
            return pidfd
        os.close(pidfd)
    return -1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
