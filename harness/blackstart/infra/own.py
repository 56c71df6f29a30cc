"""A Postgres of one's own, to be killed, paused, restarted and cut off while the run's goes on for everybody else."""

from __future__ import annotations

import os
import shutil
import signal
from enum import StrEnum
from typing import TYPE_CHECKING

from blackstart.core.closing import Closing
from blackstart.infra import admin, names
from blackstart.infra.embedded import ENVIRONMENT, HOST, USER, Installation, server_argv
from blackstart.infra.errors import InfraError
from blackstart.infra.server import PostgresServer
from blackstart.net.leases import PortLease, lease_ports
from blackstart.net.proxy_link import Link
from blackstart.process import Ending

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from blackstart.infra.admin import Budgets
    from blackstart.infra.scratch import Scratch
    from blackstart.process import Death, Exit, Handle, Spawner
    from blackstart.record import Run

SPEC = "infra"
_CLEAN = "initdb"
_PASSWORD = "password.json"  # noqa: S105 - the name of a file


class Harm(StrEnum):
    """How a server is made to end without being asked."""

    KILL = "kill"  # SIGKILL to every process of it: the power is gone
    QUIT = "quit"  # SIGQUIT to the postmaster: its own immediate shutdown, recovery at the next start
    POSTMASTER = "postmaster"  # SIGKILL to the postmaster alone: backends notice, busy ones late


def installation(scratch: Scratch) -> Installation:
    """The programs with the run's password, the same in every process of the run."""
    with scratch.locked("password"):
        known = scratch.read(_PASSWORD)
        found = Installation.find(password=known["password"] if known else "")
        if known is None:
            scratch.write(_PASSWORD, {"password": found.password})
    return found


def new_data_folder(scratch: Scratch, installed: Installation, name: str, *, within_s: float) -> Path:
    """A data folder for a new server: a copy of one that was made once for the run."""
    clean, folder = scratch.folder / _CLEAN, scratch.folder / name
    with scratch.locked(_CLEAN):
        if scratch.read(f"{_CLEAN}.json") is None:
            shutil.rmtree(clean, ignore_errors=True)  # left half-made by a process that was killed
            installed.make_data_folder(clean, within_s=within_s)
            scratch.write(f"{_CLEAN}.json", {"made_by": os.getpid()})
    installed.copy_data_folder(clean, folder, within_s=within_s)
    return folder


def start_server(
    run: Run,
    spawner: Spawner,
    installed: Installation,
    *,
    data_dir: Path,
    lease: PortLease,
    node: str,
    spec: str,
    incarnation: int,
    shared: bool,
    budgets: Budgets,
) -> tuple[PostgresServer, Handle]:
    """Start Postgres on a data folder and return once it has answered over TCP as its user."""
    port = lease.ports[0]
    handle = spawner.spawn(
        node=node,
        argv=server_argv(installed.binaries, installed.how, data_dir, port),
        env=ENVIRONMENT,
        cwd=data_dir,
        log_dir=run.spec_dir(spec),
        spec=spec,
        incarnation=incarnation,
        ports=lease,
        ending=Ending.POSTGRES,
        shared=shared,
        folder=data_dir,
    )
    facts = PostgresServer(
        provider="embedded",
        version=0,
        host=HOST,
        port=port,
        user=USER,
        password=installed.password,
        origin=installed.binaries.origin,
        data_dir=str(data_dir),
        pid=handle.pid,
    )

    def died() -> str:
        return "" if handle.alive else handle.crash_report()

    try:
        version = admin.wait_until_answers(
            facts.url(), within_s=budgets.start_s, answer_s=budgets.answer_s, died=died, thing=node
        )
    except BaseException:
        handle.kill(within=budgets.stop_s)
        raise
    return PostgresServer(**{**facts.to_state(), "version": version}), handle


class OwnServer(Closing):
    """Started on construction. `url` goes through the link, `direct_url` past it; both survive every restart.

    | call                    | Postgres                           | clients behind the link                       |
    |-------------------------|------------------------------------|-----------------------------------------------|
    | `kill(harm)`            | ends at once; committed rows stay  | are reset                                     |
    | `stop()`                | fast shutdown                      | are told, then closed                          |
    | `restart()`             | starts on the same port and data   | may connect again                             |
    | `pause()`, `resume()`   | all of its processes stand still   | get no answer, and no end                     |
    | `link.refuse()`, ...    | notices nothing                    | see what `Link` says                           |
    """

    def __init__(
        self,
        run: Run,
        spawner: Spawner,
        scratch: Scratch,
        *,
        node: str,
        spec: str | None,
        budgets: Budgets,
    ) -> None:
        self.node = node
        self.incarnation = 0
        self._run = run
        self._spawner = spawner
        self._spec = spec or SPEC
        self._budgets = budgets
        self._installed = installation(scratch)
        self._databases = 0
        self._data_dir = new_data_folder(
            scratch, self._installed, f"{node}.{os.getpid()}", within_s=budgets.start_s
        )
        self._lease = lease_ports(1, run=run.id, purpose=node)
        self._link: Link | None = None
        try:
            self.server = self._start()
            self._link = Link(
                spawner,
                run,
                target_port=self.server.port,
                node=f"{node}-link",
                spec=self._spec,
                start_s=budgets.start_s,
            )
        except BaseException:
            self.close()
            raise

    handle: Handle
    server: PostgresServer

    @property
    def link(self) -> Link:
        """The road to it."""
        if self._link is None:
            raise InfraError("postgres", self.node, wrong="is closed", remedy="own_server() for another")
        return self._link

    @property
    def alive(self) -> bool:
        """Whether the postmaster runs (or is paused)."""
        return self.handle.alive

    @property
    def version(self) -> int:
        """As the server counts: 180006."""
        return self.server.version

    def describe_death(self) -> str:
        """How it ended, for a wait that watches it."""
        return self.handle.describe_death()

    def url(self, database: str = "postgres") -> str:
        """Through the link."""
        return PostgresServer(**{**self.server.to_state(), "port": self.link.port}).url(database)

    def direct_url(self, database: str = "postgres") -> str:
        """Past the link: for looking at it while others are cut off."""
        return self.server.url(database)

    def database(self, *, prepare: Callable[[str], None] | None = None) -> str:
        """A new database on it, prepared directly; its name."""
        self._databases += 1
        name = names.database_name(self._run.id, self._databases, owner=os.getpid())
        admin.create_database(self.server, name, within_s=self._budgets.prepare_s)
        if prepare is not None:
            prepare(self.direct_url(name))
        return name

    def kill(self, harm: Harm = Harm.KILL) -> Death | Exit:
        """End it without asking; returns when none of its processes is left and its port is free."""
        if harm is Harm.KILL:
            return self.handle.kill(within=self._budgets.stop_s)
        if harm is Harm.QUIT:
            return self.handle.stop(within=self._budgets.stop_s, signal=signal.SIGQUIT)
        self.handle.signal(signal.SIGKILL)
        ended = self.handle.wait(within=self._budgets.stop_s)
        if ended is None:
            raise InfraError(
                "postgres",
                self.node,
                wrong="outlived SIGKILL of its postmaster",
                remedy=self.handle.crash_report(),
            )
        return ended

    def stop(self) -> Exit:
        """A fast shutdown: sessions are ended, nothing needs recovery."""
        return self.handle.stop(within=self._budgets.stop_s, signal=signal.SIGINT)

    def pause(self) -> None:
        """Every process of it stands still: connections are accepted by the kernel and nobody answers."""
        self.handle.pause()

    def resume(self) -> None:
        """The end of `pause`."""
        self.handle.resume()

    def restart(self, harm: Harm | None = None) -> None:
        """On the same port with the same data; ended first if it still runs, gently unless `harm` says how."""
        if self.handle.alive:
            if harm is None:
                self.stop()
            else:
                self.kill(harm)
        self.handle.kill(
            within=self._budgets.stop_s
        )  # backends that outlived their postmaster still hold its data
        self.server = self._start()

    def close(self) -> tuple[str, ...]:
        """End it, remove its data, give its ports back; what could not be done. A second time is fine."""
        troubles: list[str] = []
        if self._link is not None:
            self._link.close()
            self._link = None
        if hasattr(self, "handle"):
            self.handle.kill(within=self._budgets.stop_s)
        self._lease.release()
        try:
            shutil.rmtree(self._data_dir)
        except FileNotFoundError:
            pass  # closed before
        except OSError as error:
            troubles.append(f"{self.node}: {self._data_dir} was not removed: {error}")
        return tuple(troubles)

    def _start(self) -> PostgresServer:
        self.incarnation += 1
        server, self.handle = start_server(
            self._run,
            self._spawner,
            self._installed,
            data_dir=self._data_dir,
            lease=self._lease,
            node=self.node,
            spec=self._spec,
            incarnation=self.incarnation,
            shared=False,
            budgets=self._budgets,
        )
        return server
