"""Somebody's Postgres, by URL: checked before it is used, shared with other runs, and left as it was found.

Runs tell each other's databases from leftovers by an open connection: a child of each run holds one whose application
name begins like the run's databases. What a run still has at its end is dropped by the guardian, whatever became of
everybody else; databases of a run without a connection are dropped by the next run.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import psycopg

from blackstart.infra import admin, names
from blackstart.infra.choice import redact_url
from blackstart.infra.errors import InfraError
from blackstart.infra.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blackstart.infra.admin import Budgets
    from blackstart.infra.choice import PostgresChoice

_DEFAULT_PORT = 5432
_THING = "postgres"
_COMMAND_S = 20.0
_SHORTEST_ANYWHERE = (
    3  # what is no longer than this is hidden as a word of its own: else every text is full of it
)


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


def hold(server: PostgresServer, prefix: str) -> None:
    """Keep the run's sign of life open until this process is ended."""
    with psycopg.connect(server.url(), autocommit=True, application_name=prefix) as connection:
        sys.stderr.write(f"holding {prefix} on {redact_url(server.base_url)}\n")
        connection.execute("LISTEN blackstart")
        for _ in connection.notifies():  # nobody notifies: this waits for the connection's end, or ours
            continue


def drop_of_run(server: PostgresServer, prefix: str, *, within_s: float) -> tuple[str, ...]:
    """Drop every database of one run; what could not be dropped."""
    names_left = admin.databases(server, prefix, within_s=within_s)
    troubles = (admin.try_drop_database(server, name, within_s=within_s) for name in names_left)
    return tuple(trouble for trouble in troubles if trouble)


def drop_of_dead_runs(server: PostgresServer, *, within_s: float) -> tuple[str, ...]:
    """Drop databases of runs that hold no sign of life any more; the names dropped."""
    with admin.admin_connection(server.url(), within_s=within_s) as connection:
        rows = connection.execute(
            "SELECT d.datname FROM pg_database d WHERE starts_with(d.datname, %s) AND NOT EXISTS ("
            " SELECT FROM pg_stat_activity a WHERE starts_with(a.application_name, %s)"
            " AND starts_with(d.datname, a.application_name))",
            (names.PREFIX, names.PREFIX),
        ).fetchall()
    left = [row[0] for row in rows if re.fullmatch(rf"{names.PREFIX}[0-9a-z_]+_[0-9a-z]+_[0-9a-z]+", row[0])]
    return tuple(name for name in left if not admin.try_drop_database(server, name, within_s=within_s))


def has_sign_of_life(server: PostgresServer, prefix: str, *, within_s: float) -> bool:
    """Whether some process holds the run's connection."""
    with admin.admin_connection(server.url(), within_s=within_s) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", (prefix,)
        ).fetchone()
    return row is not None and row[0] > 0


def _without_password(error: Exception, url: str) -> str:
    text = " ".join(str(error).split())
    password = urlsplit(url).password
    for secret in {password, unquote(password)} if password else set():
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])", "***", text)
        if len(secret) > _SHORTEST_ANYWHERE:
            text = text.replace(secret, "***")
    return text


def command(word: str, state: Path, prefix: str) -> list[str]:
    """The argument list of this module's own command: the password stays in the file."""
    return [sys.executable, "-m", __name__, word, str(state), prefix]


def main(argv: Sequence[str] | None = None) -> int:
    """`hold STATE PREFIX` until ended; `drop STATE PREFIX`: exit status 0, or 1 with what could not be dropped."""
    parser = argparse.ArgumentParser(prog="python -m blackstart.infra.external")
    parser.add_argument("command", choices=["hold", "drop"])
    parser.add_argument("state", type=Path)
    parser.add_argument("prefix")
    options = parser.parse_args(argv)
    if not options.prefix.startswith(names.PREFIX) or not options.prefix.endswith("_"):
        parser.error(f"prefix={options.prefix}: names no run")
    server = PostgresServer.from_state(json.loads(options.state.read_bytes()))
    try:
        if options.command == "hold":
            hold(server, options.prefix)
            return 0
        troubles = drop_of_run(server, options.prefix, within_s=_COMMAND_S)
    except psycopg.Error as error:
        troubles = (_without_password(error, server.base_url),)
    sys.stderr.writelines(
        f"blackstart: postgres={redact_url(server.base_url)}: {text}\n" for text in troubles
    )
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
