"""What specs ask for: one Postgres for the whole run, a database for each of them, a server of their own to hurt."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Self

from blackstart.infra import admin, names
from blackstart.infra.admin import Budgets
from blackstart.infra.choice import DEFAULT_OPTION, never_asked, parse_choice
from blackstart.infra.database import Database, template_key
from blackstart.infra.errors import InfraError
from blackstart.infra.own import OwnServer
from blackstart.infra.scratch import Scratch
from blackstart.infra.shared import NODE, known_server, shared_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from blackstart.infra.server import PostgresServer
    from blackstart.process import Spawner
    from blackstart.record import Run

_NUMBERS = itertools.count(1)  # of this process, so that two of a run never name a database alike


class Infra:
    """One for each who asks; all of a run share the server. Nothing starts before something is asked for.

    | call                     | gives                                                                     |
    |--------------------------|---------------------------------------------------------------------------|
    | `postgres`               | the run's server: started once, by whichever process asks first           |
    | `database(prepare=f)`    | a database of your own, cloned from one that `f(url)` prepared once a run |
    | `own_server()`           | a server of your own, behind a link, to be killed, paused, cut off        |
    | `report()`               | one line: version, provider, image, how many databases                    |
    """

    def __init__(
        self,
        run: Run,
        spawner: Spawner,
        option: str = DEFAULT_OPTION,
        *,
        budgets: Budgets | None = None,
        thing: str = "--bs-postgres",
        spec: str | None = None,
        name: str = NODE,
    ) -> None:
        """`name` tells the run's server from the one beside it; all who give it share that one."""
        self._name = name
        self.choice = parse_choice(option, thing=thing)
        self._run = run
        self._spawner = spawner
        self._spec = spec  # whose own servers' logs lie in its folder
        self._budgets = budgets or Budgets()
        self._scratch: Scratch | None = None
        self._server: PostgresServer | None = None
        self._databases: list[Database] = []
        self._servers: list[OwnServer] = []

    @property
    def started(self) -> bool:
        """Whether this process has asked for the server yet."""
        return self._server is not None

    @property
    def postgres(self) -> PostgresServer:
        """The run's server."""
        if self._server is None:
            self._server = shared_server(
                self._run,
                self._spawner,
                self.scratch,
                choice=self.choice,
                budgets=self._budgets,
                name=self._name,
            )
        return self._server

    @property
    def scratch(self) -> Scratch:
        """The run's folder in memory."""
        if self._scratch is None:
            self._scratch = Scratch(self._run, within_s=self._budgets.prepare_s)
        return self._scratch

    @property
    def databases(self) -> tuple[str, ...]:
        """Names of databases this process asked for and has not dropped."""
        return tuple(database.name for database in self._databases)

    def database(self, *, prepare: Callable[[str], None] | None = None) -> Database:
        """A new database; `prepare` is given the URL of the one that this and others are copied from."""
        server = self.postgres
        key = template_key(prepare) if prepare is not None else None
        template = self._template(key, prepare) if prepare is not None and key is not None else ""
        name = names.database_name(self._run.id, next(_NUMBERS), owner=os.getpid())
        admin.create_database(server, name, template=template, within_s=self._budgets.prepare_s)
        database = Database(server, name, self._budgets.answer_s, self._databases.remove)
        self._databases.append(database)  # from here on `close` drops it, whatever comes next
        self.scratch.count(name, server=self._name)
        if prepare is not None and key is None:
            prepare(database.url)
        return database

    def own_server(self, *, node: str = "", spec: str | None = None) -> OwnServer:
        """A Postgres nobody else uses, embedded whatever the run's choice is: only such a one can be hurt by signals."""
        server = OwnServer(
            self._run,
            self._spawner,
            self.scratch,
            node=node or f"postgres-own-{os.getpid()}-{next(_NUMBERS)}",
            spec=spec or self._spec,
            budgets=self._budgets,
        )
        self._servers.append(server)
        return server

    def report(self) -> str:
        """For the summary: which server specs ran on and how many databases they had of it."""
        scratch = self._scratch or Scratch.found(self._run, within_s=self._budgets.prepare_s)
        server = None if scratch is None else known_server(scratch, self._name)
        if scratch is None or server is None:
            return never_asked(self.choice)
        return f"{server.describe()}: {scratch.counted(self._name)} databases"

    def close(self) -> tuple[str, ...]:
        """Drop what this process still has, end its own servers, and say what could not be done.

        The run's server goes on for the others; the guardian ends it with the run.
        """
        troubles: list[str] = []
        for database in tuple(self._databases):
            trouble = database.drop()
            if trouble:
                troubles.append(trouble)
        for server in self._servers:
            troubles.extend(server.close())
        self._servers.clear()
        self._server = None
        return tuple(troubles)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        troubles = self.close()
        if troubles and error is None:
            raise InfraError("infra", self._run.id, wrong="; ".join(troubles), remedy="drop them by hand")

    def _template(self, key: str, prepare: Callable[[str], None]) -> str:
        server = self.postgres
        name = names.template_name(self._run.id, key)
        with self.scratch.locked("templates"):
            if admin.is_sealed(server, name, within_s=self._budgets.answer_s):
                return name
            # Left half-done by a process that was killed, or not there at all.
            admin.drop_database(server, name, within_s=self._budgets.answer_s)
            admin.create_database(server, name, within_s=self._budgets.prepare_s)
            try:
                prepare(server.url(name))
                admin.seal_template(server, name, within_s=self._budgets.answer_s)
            except BaseException:
                admin.try_drop_database(server, name, within_s=self._budgets.answer_s)
                raise
        return name
