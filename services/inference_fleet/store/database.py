"""One process's way to Postgres: a small pool whose every wait ends, and whose outages have one name."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import select
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import DictRow, dict_row
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from inference_fleet.store.errors import DatabaseRefused, DatabaseTooOld, DatabaseUnavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from psycopg.abc import PQGen

    from inference_fleet.settings import Timings

Connection: TypeAlias = psycopg.AsyncConnection[DictRow]

OLDEST_SERVER = 14
_POOL_MAX = 8
_RV = TypeVar("_RV")
# What the library files under errors of its own: a server that takes no writes (a standby, after a failover), and one
# that has ended a session which stood still in the middle of a transaction.
_OUTAGES = (psycopg.errors.ReadOnlySqlTransaction, psycopg.errors.IdleInTransactionSessionTimeout)

# The pool reports each failed attempt of an outage; whoever is refused a connection says it once, by name.
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


class _BoundedConnection(psycopg.AsyncConnection[DictRow]):
    """A connection on which no statement waits longer than its limit, even for a server that is frozen.

    The server's own `statement_timeout` ends a slow statement; a stopped server cannot. So past the limit the
    socket is shut down from this side, which psycopg reads as a lost connection.
    """

    limit_s: float = 0.0

    async def wait(
        self,
        gen: PQGen[_RV],
        interval: float | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  # psycopg's signature, overridden
    ) -> _RV:
        """Psycopg's own wait for the server, with an alarm beside it."""
        options: dict[str, float] = {} if interval is None else {"interval": interval}
        if not self.limit_s:
            return await super().wait(gen, timeout=timeout, **options)
        alarm = asyncio.get_running_loop().call_later(self.limit_s, self._cut)
        try:
            return await super().wait(gen, timeout=timeout, **options)
        finally:
            alarm.cancel()

    def _cut(self) -> None:
        if self.closed:
            return
        with socket.socket(fileno=os.dup(self.pgconn.socket)) as copy:
            copy.shutdown(socket.SHUT_RDWR)


class _Pool(AsyncConnectionPool[_BoundedConnection]):
    """The library's pool, which a task that is cancelled in the wrong turn neither robs nor outlives.

    A return that hands a connection to a waiter is cut by a cancel of whoever returns it: the waiter is off the queue
    then, and nobody wakes it; the connection is lost with its place in the pool. And a waiter that is cancelled in the
    turn in which it is handed one may go on as if nothing had been (Python 3.11's `wait_for`).
    """

    async def getconn(self, timeout: float | None = None) -> _BoundedConnection:  # noqa: ASYNC109 - the library's
        """A connection, or the cancel that came while it was waited for."""
        task = asyncio.current_task()
        assert task is not None, "awaited by a task"
        before = task.cancelling()
        connection = await super().getconn(timeout)
        if task.cancelling() > before:
            await self.putconn(connection)
            raise asyncio.CancelledError
        return connection

    async def putconn(self, conn: _BoundedConnection) -> None:
        """Return it whole, whatever becomes of the caller meanwhile."""
        returning = asyncio.create_task(super().putconn(conn))
        try:
            await asyncio.shield(returning)
        except asyncio.CancelledError:
            await asyncio.wait([returning])
            raise


class Database:
    """A pool of at most 8 connections: autocommit, rows as dicts, UTC, bounded statements.

    | wait                       | ends after              | as                    |
    |----------------------------|-------------------------|-----------------------|
    | a connection from the pool | `database_connect_s`    | `DatabaseUnavailable` |
    | one statement              | `database_statement_s`  | `DatabaseUnavailable` |
    | one statement, server dead | twice that              | `DatabaseUnavailable` |
    | the next of a transaction  | `database_statement_s`  | `DatabaseUnavailable` |

    The last keeps a replica that stands still in the middle of a transaction from holding its locks against the others.
    """

    def __init__(self, pool: _Pool, *, name: str, where: str) -> None:
        """Made by `open`; `where` names host, port and database without any secret."""
        self._pool = pool
        self.name = name
        self.where = where

    @classmethod
    async def open(cls, url: str, *, timings: Timings, name: str) -> Self:
        """Connect once to see that it works, then open the pool.

        `DatabaseUnavailable` is an outage; `DatabaseRefused` and `DatabaseTooOld` are verdicts.

        `name` is shown by the server as `application_name`.
        """
        conninfo, where = connection_options(url, timings=timings, name=name)
        async with _outage(where):
            probe = await psycopg.AsyncConnection.connect(conninfo, autocommit=True)
            try:
                require_server_version(probe.info.server_version, where=where)
            finally:
                await probe.close()

        async def configure(connection: _BoundedConnection) -> None:
            connection.limit_s = 2 * timings.database_statement_s

        async def check(connection: _BoundedConnection) -> None:
            # A silent connection costs no round trip; one that was ended means that the others were, too, and the
            # pool would try them one by one with growing pauses.
            if not _has_something_to_say(connection):
                return
            try:
                await AsyncConnectionPool.check_connection(connection)
            except psycopg.Error:
                await pool.drain()
                raise

        pool = _Pool(
            conninfo,
            connection_class=_BoundedConnection,
            kwargs={"autocommit": True, "row_factory": dict_row},
            min_size=1,
            max_size=_POOL_MAX,
            open=False,
            configure=configure,
            check=check,
            name=name,
            timeout=timings.database_connect_s,
            reconnect_timeout=timings.instance_beat_s,
        )
        await pool.open()
        return cls(pool, name=name, where=where)

    async def close(self) -> None:
        """Close every connection; a statement still running loses its own."""
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection in autocommit; an outage inside the block is `DatabaseUnavailable`."""
        async with _outage(self.where):
            try:
                async with self._pool.connection() as connection:
                    yield connection
            except PoolTimeout as error:
                raise PoolTimeout(f"{error} ({_told(self._pool)})") from None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside one transaction: committed at the end of the block, rolled back by an exception."""
        async with self.connection() as connection, connection.transaction():
            yield connection

    async def rows(self, query: str, parameters: dict[str, Any] | None = None) -> list[DictRow]:
        """Every row one statement gives."""
        async with self.connection() as connection:
            cursor = await connection.execute(query, parameters)
            return await cursor.fetchall()

    async def row(self, query: str, parameters: dict[str, Any] | None = None) -> DictRow | None:
        """The first row one statement gives, or None for none."""
        async with self.connection() as connection:
            cursor = await connection.execute(query, parameters)
            return await cursor.fetchone()

    async def change(self, query: str, parameters: dict[str, Any] | None = None) -> int:
        """How many rows one statement changed."""
        async with self.connection() as connection:
            cursor = await connection.execute(query, parameters)
            return cursor.rowcount


def connection_options(url: str, *, timings: Timings, name: str) -> tuple[str, str]:
    """The conninfo with every limit in it, and `host:port/database` for messages (no secret)."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise DatabaseRefused(
            "the database URL cannot be read; try: postgresql://USER:PASSWORD@HOST:PORT/NAME"
        ) from None
    statement_ms = math.ceil(timings.database_statement_s * 1000)
    limits = f"-c statement_timeout={statement_ms} -c idle_in_transaction_session_timeout={statement_ms}"
    options = f"{limits} -c timezone=UTC {given.pop('options', None) or ''}".strip()
    conninfo = make_conninfo(
        "",
        **{
            **given,
            "connect_timeout": max(2, math.ceil(timings.database_connect_s)),
            "application_name": name,
            "tcp_user_timeout": 2 * statement_ms,
            "options": options,
        },
    )
    where = f"{given.get('host', 'localhost')}:{given.get('port', 5432)}/{given.get('dbname', '')}"
    return conninfo, where


def require_server_version(version: int, *, where: str) -> None:
    """Refuse a server older than the oldest supported, by name."""
    if version < OLDEST_SERVER * 10000:
        raise DatabaseTooOld(
            f"database {where} runs Postgres {version // 10000}.{version % 10000}: "
            f"{OLDEST_SERVER} or newer is needed; try: upgrade the server or name another in BLACKSTART_DATABASE_URL"
        )


def refuse_wrong_password(error: psycopg.Error, *, where: str) -> None:
    """Raise `DatabaseRefused` when a connect failed because the server wants another password, or any at all.

    A failed connect carries no SQLSTATE, so the server's words tell a wrong password from an outage after the login; a
    server that speaks another language is taken for one that is out.
    """
    tried = error.pgconn
    if tried is None or not (
        tried.needs_password or (tried.used_password and "password authentication failed" in str(error))
    ):
        return
    raise DatabaseRefused(
        f"database {where} did not accept the user or the password; try: correct them in BLACKSTART_DATABASE_URL"
    ) from None


def _has_something_to_say(connection: _BoundedConnection) -> bool:
    """Whether an idle connection has unread bytes or an end of file, as one has whose server ended it."""
    poller = select.poll()
    poller.register(connection.pgconn.socket, select.POLLIN)
    return bool(poller.poll(0))


def _told(pool: _Pool) -> str:
    """What the pool has: whether its connections are all in use, do not come about, or were lost."""
    has = pool.get_stats()
    tried, failed = has.get("connections_num", 0), has.get("connections_errors", 0)
    return (
        f"{has['pool_size']} of at most {has['pool_max']} connections, {has['pool_available']} idle, "
        f"{has['requests_waiting']} waits; {failed} of {tried} connects failed, taking {has.get('connections_ms', 0)} ms "
        f"in all, {has.get('connections_lost', 0) + has.get('returns_bad', 0)} connections were lost"
    )


@asynccontextmanager
async def _outage(where: str) -> AsyncIterator[None]:
    try:
        yield
    except (psycopg.OperationalError, psycopg.InterfaceError, *_OUTAGES) as error:
        refuse_wrong_password(error, where=where)
        raise DatabaseUnavailable(
            f"database {where} did not serve: {_text(error)}; try: check that it runs and that "
            "BLACKSTART_DATABASE_URL names it"
        ) from error


def _text(error: psycopg.Error) -> str:
    """One line of what came back."""
    return " ".join(str(error).split()) or type(error).__name__
