"""How a run gets its guardian and how each user of the run holds on to it: by an open connection, which ends with its life."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import msgspec

from blackstart.core.closing import Closing
from blackstart.process.errors import GuardianGone
from blackstart.process.procfs import TAGS, read_stat
from blackstart.process.wire import ANSWER, PACKET_LIMIT, Answer, Said, address, peer

if TYPE_CHECKING:
    from blackstart.record import Run

START_WITHIN_S = 20.0
ANSWER_WITHIN_S = 10.0
GUARDIAN_LOG = "guardian.log"


class GuardianLease(Closing):
    """One user's open connection. The guardian ends this user's processes when it closes, however it closes."""

    def __init__(self, run: Run, connection: socket.socket) -> None:
        self._run = run
        self._connection = connection
        self._lock = threading.Lock()
        self._closed = False
        stat = read_stat(os.getpid())
        said = Said(op="hello", pid=os.getpid(), started=0 if stat is None else stat.started)
        self.guardian_pid = self._ask(said).pid

    def __repr__(self) -> str:
        return f"<GuardianLease of {self._run.id} held by guardian pid {self.guardian_pid}>"

    @property
    def alive(self) -> bool:
        """Whether the guardian still holds the other end."""
        with self._lock:
            if self._closed:
                return False
            poll = select.poll()
            poll.register(self._connection, select.POLLRDHUP | select.POLLHUP)
            return not poll.poll(0)

    def admit(self, charge_id: str) -> None:
        """Make sure that the guardian is there and will see to this charge; `GuardianGone` if not."""
        self._ask(Said(op="admit", charge=charge_id))

    def close(self) -> None:
        """Say goodbye; whatever this user has left running is ended now. A second time is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._connection.send(msgspec.json.encode(Said(op="bye")))
            except OSError:
                pass  # the guardian is gone already: there is nobody to say it to
            finally:
                self._connection.close()

    def _ask(self, said: Said) -> Answer:
        with self._lock:
            try:
                answer = _exchange(self._connection, said)
            except (OSError, msgspec.DecodeError) as wrong:
                raise GuardianGone(_gone(self._run, str(wrong))) from wrong
        if not answer.ok:
            raise GuardianGone(_gone(self._run, answer.why))
        return answer


class Guardian:
    """Starts the guardian of a run and connects to it. The guardian itself is `python -m blackstart.process.guardian`."""

    @staticmethod
    def start(run: Run) -> None:
        """Start the guardian in a session of its own; returns when it listens. It watches this process from now on."""
        stat = read_stat(os.getpid())
        if stat is None:
            raise GuardianGone(f"run {run.id}: /proc does not show this process; try: mount /proc")
        reading, writing = os.pipe()
        env = {name: value for name, value in os.environ.items() if name not in TAGS}
        command = [
            *(sys.executable, "-P", "-m", "blackstart.process.guardian", str(run.dir)),
            *(str(os.getpid()), str(stat.started), str(writing)),
        ]
        try:
            with (run.dir / GUARDIAN_LOG).open("ab") as log:
                starter = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    pass_fds=(writing,),
                    env=env,
                )
            os.close(writing)
            writing = -1
            poll = select.poll()
            poll.register(reading, select.POLLIN)
            said = os.read(reading, 64) if poll.poll(START_WITHIN_S * 1000) else b""
            starter.wait(timeout=START_WITHIN_S)  # it forks and ends at once: the guardian is nobody's child
        finally:
            os.close(reading)
            if writing >= 0:
                os.close(writing)
        if said != b"ready\n":
            told = (run.dir / GUARDIAN_LOG).read_text(errors="replace").strip().splitlines() or [
                "no word from it"
            ]
            raise GuardianGone(
                f"run {run.id}: the guardian did not start: {told[-1]}; try: read {run.dir / GUARDIAN_LOG}"
            )

    @staticmethod
    def connect(run: Run) -> GuardianLease:
        """Join the run as a user. Keep the lease for as long as this process uses the run."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            _dial(run, connection)
            return GuardianLease(run, connection)
        except BaseException:
            connection.close()
            raise


def _dial(run: Run, connection: socket.socket) -> None:
    connection.settimeout(ANSWER_WITHIN_S)
    try:
        connection.connect(address(run.id))
    except OSError as wrong:
        raise GuardianGone(_gone(run, str(wrong))) from wrong
    pid, uid = peer(connection)
    if uid != os.getuid():
        raise GuardianGone(f"run {run.id}: pid {pid} of user {uid} poses as its guardian; try: end it")


def _exchange(connection: socket.socket, said: Said) -> Answer:
    connection.send(msgspec.json.encode(said))
    raw = connection.recv(PACKET_LIMIT)
    if not raw:
        raise ConnectionError("it closed the connection")
    return ANSWER.decode(raw)


def _gone(run: Run, why: str) -> str:
    return (
        f"run {run.id}: its guardian is not there ({why}), so nothing may be spawned;"
        f" try: read {run.dir / GUARDIAN_LOG} and start a new run"
    )
