"""What is asked of a server from outside: does it answer, make a database, drop one. Every connection is scoped."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from blackstart.core.deadline import Looks
from blackstart.infra.choice import redact_url
from blackstart.infra.errors import InfraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blackstart.infra.server import PostgresServer

OLDEST = 140000  # DROP DATABASE WITH (FORCE) is from 13, what the fleet's statements need from 14
_FILE_COPY_SINCE = 150000
_LOOK_EVERY_S = 0.01


@dataclass(frozen=True, kw_only=True)
class Budgets:
    """How long infrastructure may take, in seconds."""

    start_s: float = 60.0  # a server from nothing to its first answer, on a loaded machine
    answer_s: float = 10.0  # one connection, and one statement of ours on it
    prepare_s: float = 120.0  # others preparing the template we want
    stop_s: float = 20.0


@contextmanager
def admin_connection(url: str, *, within_s: float) -> Iterator[psycopg.Connection]:
    """An autocommit connection that is closed whatever happens inside; statements are bounded by `within_s`."""
    connection = psycopg.connect(
        url,
        autocommit=True,
        connect_timeout=max(2, round(within_s)),  # libpq reads less than 2 as 2
        application_name="blackstart-admin",
        options=f"-c statement_timeout={round(within_s * 1000)}",
    )
    try:
        yield connection
    finally:
        connection.close()


def version_of(url: str, *, within_s: float) -> int:
    """The server's version by a real `SELECT 1` over TCP: an open port proves nothing."""
    with admin_connection(url, within_s=within_s) as connection:
        connection.execute("SELECT 1")
        return connection.info.server_version


def wait_until_answers(
    url: str, *, within_s: float, died: Callable[[], str], answer_s: float, thing: str = "postgres"
) -> int:
    """Look until the server answers as the user, and return its version.

    `died` says why there is nothing left to wait for ("" while there is); it is asked at every look.
    """
    for turn in _looks(within_s, every_s=_LOOK_EVERY_S):
        try:
            version = version_of(url, within_s=answer_s)
        except psycopg.OperationalError as error:
            last = _one_line(error)
        else:
            break
        why = died()
        if why:
            raise InfraError(thing, redact_url(url), wrong=why, remedy="read the log named above")
        if turn.over:
            raise InfraError(
                thing,
                redact_url(url),
                wrong=f"no answer to SELECT 1 within {within_s:g} s; the last try said: {last}",
                remedy="look at its log; on a slow machine a larger time factor",
            )
    return version


def require_version(version: int, *, thing: str, value: str) -> None:
    """Refuse a server that is too old for the statements used here."""
    if version < OLDEST:
        raise InfraError(
            thing,
            value,
            wrong=f"Postgres {version // 10000}.{version % 10000} is too old",
            remedy=f"a server of version {OLDEST // 10000} or later",
        )


def create_database(server: PostgresServer, name: str, *, template: str = "", within_s: float) -> None:
    """CREATE DATABASE, from a template when one is named: by copying its files where the server can."""
    statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    if template:
        statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(template))
        if server.version >= _FILE_COPY_SINCE:
            statement += sql.SQL(" STRATEGY FILE_COPY")
    with admin_connection(server.url(), within_s=within_s) as connection:
        connection.execute(statement)


def seal_template(server: PostgresServer, name: str, *, within_s: float) -> None:
    """Mark a prepared database as a finished template that nobody can connect to."""
    statement = sql.SQL("ALTER DATABASE {} WITH IS_TEMPLATE true ALLOW_CONNECTIONS false").format(
        sql.Identifier(name)
    )
    with admin_connection(server.url(), within_s=within_s) as connection:
        connection.execute(statement)


def is_sealed(server: PostgresServer, name: str, *, within_s: float) -> bool:
    """Whether a template of that name was prepared to the end; a half-prepared one was never sealed."""
    with admin_connection(server.url(), within_s=within_s) as connection:
        row = connection.execute(
            "SELECT datistemplate FROM pg_database WHERE datname = %s", (name,)
        ).fetchone()
    return row is not None and bool(row[0])


def drop_database(server: PostgresServer, name: str, *, within_s: float) -> None:
    """Drop it if it is there, ending connections that were left open on it."""
    database = sql.Identifier(name)
    with admin_connection(server.url(), within_s=within_s) as connection:
        row = connection.execute(
            "SELECT datistemplate FROM pg_database WHERE datname = %s", (name,)
        ).fetchone()
        if row is None:
            return
        if row[0]:  # a template is not dropped by mistake
            connection.execute(sql.SQL("ALTER DATABASE {} IS_TEMPLATE false").format(database))
        _end_sessions(connection, name, within_s=within_s)
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(database))


def _end_sessions(connection: psycopg.Connection, name: str, *, within_s: float) -> None:
    """DROP's own FORCE ends sessions as well, but looks again only after a tenth of a second."""
    for turn in _looks(within_s, every_s=_LOOK_EVERY_S / 5):
        if turn.over:
            return
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )
        if not ended.rowcount:
            return


def _looks(within_s: float, *, every_s: float) -> Looks:
    return Looks(until=time.monotonic() + within_s, every_s=every_s, clock=time.monotonic, sleep=time.sleep)


def try_drop_database(server: PostgresServer, name: str, *, within_s: float) -> str:
    """The same for a cleanup: an error becomes its text ("" for none), so that the next cleanup still runs."""
    try:
        drop_database(server, name, within_s=within_s)
    except psycopg.Error as error:
        return f"database {name} was not dropped: {_one_line(error)}"
    return ""


def databases(server: PostgresServer, prefix: str, *, within_s: float) -> tuple[str, ...]:
    """Names that begin with `prefix`, sorted."""
    with admin_connection(server.url(), within_s=within_s) as connection:
        rows = connection.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s) ORDER BY 1", (prefix,)
        ).fetchall()
    return tuple(row[0] for row in rows)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
