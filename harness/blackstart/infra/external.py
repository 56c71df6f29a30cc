"""Somebody's Postgres, by URL: checked before it is used, shared with other runs, and left as it was found.

Runs tell each other's databases from leftovers by an open connection: each process of a run holds one whose application
name begins like the run's databases. Databases of a run that has none are dropped by the next run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import psycopg

from blackstart.infra import admin, names
from blackstart.infra.choice import redact_url
from blackstart.infra.errors import InfraError
from blackstart.infra.server import PostgresServer

if TYPE_CHECKING:
    from blackstart.infra.admin import Budgets
    from blackstart.infra.choice import PostgresChoice

_DEFAULT_PORT = 5432
_THING = "postgres"


def external_server(choice: PostgresChoice, *, budgets: Budgets) -> PostgresServer:
    """The server behind a URL, if it answers in time, is new enough and lets us make databases."""
    shown = redact_url(choice.url)
    parts = urlsplit(choice.url)
    try:
        with admin.admin_connection(choice.url, within_s=budgets.answer_s) as connection:
            version = connection.info.server_version
            row = connection.execute(
                "SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
            ).fetchone()
    except psycopg.OperationalError as error:
        raise InfraError(
            _THING,
            shown,
            wrong=f"does not answer: {_without_password(error, choice.url)}",
            remedy="a URL that psql connects with, or --postgres embedded",
        ) from None  # the driver's own text may hold the password
    admin.require_version(version, thing=_THING, value=shown)
    if row is None or not row[0]:
        raise InfraError(
            _THING,
            shown,
            wrong="its user may not make databases",
            remedy=f"ALTER ROLE {unquote(parts.username or '')} CREATEDB",
        )
    return PostgresServer(
        provider="external",
        version=version,
        host=parts.hostname or "",
        port=parts.port or _DEFAULT_PORT,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        origin=shown,
        base_url=choice.url,
    )


class ExternalLease:
    """This process's sign of life on an external server, held until `leave`."""

    def __init__(self, server: PostgresServer, run_id: str, *, within_s: float) -> None:
        self._server = server
        self._prefix = names.run_prefix(run_id)
        self._within_s = within_s
        self._connection = psycopg.connect(
            server.url(),
            autocommit=True,
            connect_timeout=max(2, round(within_s)),
            application_name=self._prefix,
        )

    def sweep(self) -> tuple[str, ...]:
        """Drop databases of runs that hold no connection any more; their names."""
        with admin.admin_connection(self._server.url(), within_s=self._within_s) as connection:
            rows = connection.execute(
                "SELECT d.datname FROM pg_database d WHERE starts_with(d.datname, %s) AND NOT EXISTS ("
                " SELECT FROM pg_stat_activity a WHERE starts_with(a.application_name, %s)"
                " AND starts_with(d.datname, a.application_name))",
                (names.PREFIX, names.PREFIX),
            ).fetchall()
        left = [row[0] for row in rows if re.fullmatch(rf"{names.PREFIX}[0-9a-z_]+", row[0])]
        return tuple(
            name for name in left if not admin.try_drop_database(self._server, name, within_s=self._within_s)
        )

    def leave(self) -> tuple[str, ...]:
        """End the sign of life; the last of the run drops what the run still has. What could not be dropped."""
        self._connection.close()
        try:
            with admin.admin_connection(self._server.url(), within_s=self._within_s) as connection:
                others = connection.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (self._prefix,)
                ).fetchone()
            if others is None or others[0]:
                return ()
            left = admin.databases(self._server, self._prefix, within_s=self._within_s)
        except psycopg.Error as error:
            return (
                f"{redact_url(self._server.base_url)}: {_without_password(error, self._server.base_url)}",
            )
        troubles = (admin.try_drop_database(self._server, name, within_s=self._within_s) for name in left)
        return tuple(trouble for trouble in troubles if trouble)


def _without_password(error: Exception, url: str) -> str:
    text = " ".join(str(error).split())
    password = urlsplit(url).password
    for secret in {password, unquote(password)} if password else set():
        text = text.replace(secret, "***")
    return text
