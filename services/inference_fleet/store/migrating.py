"""The schema brought up to date by whichever replica comes first, the others waiting for it.

Files `NNNN_name.sql` in `migrations/` are applied in order, each once, all in one transaction under an advisory
lock that the transaction itself releases. They expand first and contract a release later, so a replica of the
release before can still read the result.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from dataclasses import dataclass
from importlib import resources

import psycopg

from inference_fleet.settings import Timings
from inference_fleet.store.database import connection_options, refuse_wrong_password, require_server_version
from inference_fleet.store.errors import DatabaseUnavailable, MigrationChanged

# An arbitrary number that means "the schema of this product is being changed".
_LOCK = 0x626C61636B
_FILE = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True)
class Migration:
    """One numbered file: its place in the order, its name and its text."""

    version: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """What the applied text is remembered by."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known_migrations() -> list[Migration]:
    """The files that ship with this release, in order; numbers start at 1 and leave no gap."""
    files = (resources.files(__package__) / "migrations").iterdir()
    found = sorted(
        (
            Migration(int(match[1]), file.name, file.read_text(encoding="utf-8"))
            for file in files
            if (match := _FILE.fullmatch(file.name))
        ),
        key=lambda migration: migration.version,
    )
    assert [migration.version for migration in found] == list(range(1, len(found) + 1))
    return found


def pending_migrations(known: list[Migration], applied: dict[int, str]) -> list[Migration]:
    """Which of `known` are still to come; an applied one whose text changed is `MigrationChanged`.

    Versions above the newest known are another replica's newer release and are left alone.
    """
    for migration in known:
        digest = applied.get(migration.version)
        if digest is not None and digest != migration.digest:
            raise MigrationChanged(
                f"migration {migration.name} was applied with another text (sha256 {digest[:12]}, now "
                f"{migration.digest[:12]}); try: put the change into a new numbered file, or start from an empty database"
            )
    return [migration for migration in known if migration.version not in applied]


def migrate_sync(url: str, *, timings: Timings | None = None) -> None:
    """Apply what is missing. Blocks: for the connection and the lock, each in bounded time."""
    times = timings or Timings.production()
    conninfo, where = connection_options(url, timings=times, name="blackstart-migrate")
    known = known_migrations()
    try:
        with psycopg.connect(conninfo, autocommit=True) as connection:
            require_server_version(connection.info.server_version, where=where)
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS schema_migrations (version integer PRIMARY KEY, name text NOT NULL,"
                    " sha256 text NOT NULL, applied_at timestamptz NOT NULL)"
                )
                rows = connection.execute("SELECT version, sha256 FROM schema_migrations").fetchall()
                for migration in pending_migrations(known, dict(rows)):
                    connection.execute(migration.sql.encode())
                    connection.execute(
                        "INSERT INTO schema_migrations VALUES (%s, %s, %s, clock_timestamp())",
                        (migration.version, migration.name, migration.digest),
                    )
    except psycopg.OperationalError as error:
        refuse_wrong_password(error, where=where)
        raise DatabaseUnavailable(
            f"database {where} could not be migrated: {' '.join(str(error).split())}; try: check that it runs and "
            "that the user of BLACKSTART_DATABASE_URL may create tables"
        ) from error


async def migrate(url: str, *, timings: Timings | None = None) -> None:
    """`migrate_sync` beside the event loop."""
    await asyncio.to_thread(migrate_sync, url, timings=timings)
