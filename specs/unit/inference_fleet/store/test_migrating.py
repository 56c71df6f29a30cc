"""The schema, brought up to date once by whoever comes first."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from inference_fleet.store import DatabaseUnavailable, MigrationChanged, migrate, migrate_sync
from inference_fleet.store.migrating import Migration, known_migrations, pending_migrations

FIRST = Migration(1, "0001_first.sql", "CREATE TABLE a ()")
SECOND = Migration(2, "0002_second.sql", "CREATE TABLE b ()")


def test_only_what_is_missing_is_applied() -> None:
    assert pending_migrations([FIRST, SECOND], {}) == [FIRST, SECOND]
    assert pending_migrations([FIRST, SECOND], {1: FIRST.digest}) == [SECOND]
    assert pending_migrations([FIRST, SECOND], {1: FIRST.digest, 2: SECOND.digest}) == []


def test_a_newer_release_in_the_database_is_left_alone() -> None:
    assert pending_migrations([FIRST], {1: FIRST.digest, 2: "whatever"}) == []


def test_an_applied_migration_whose_text_changed_is_named() -> None:
    with pytest.raises(MigrationChanged, match=r"0001_first\.sql was applied with another text"):
        pending_migrations([FIRST], {1: "f" * 64})


def test_the_files_that_ship_are_numbered_without_a_gap() -> None:
    known = known_migrations()
    assert [migration.version for migration in known] == list(range(1, len(known) + 1))
    assert known


def test_several_replicas_may_migrate_an_empty_database_at_once(infra: Any) -> None:
    database = infra.database()

    async def story() -> None:
        await asyncio.gather(*(migrate(database.url) for _ in range(4)))

    asyncio.run(story())
    with psycopg.connect(database.url) as connection:
        applied = connection.execute("SELECT version FROM schema_migrations ORDER BY 1").fetchall()
    assert [version for (version,) in applied] == [migration.version for migration in known_migrations()]
    database.drop()


def test_migrating_again_changes_nothing(url: str) -> None:
    migrate_sync(url)
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM schema_migrations").fetchone()
    assert row == (len(known_migrations()),)


def test_a_database_that_is_not_there_is_named_without_its_password() -> None:
    with pytest.raises(DatabaseUnavailable, match=r"127\.0\.0\.1:1/x could not be migrated") as caught:
        migrate_sync("postgresql://u:hunter22@127.0.0.1:1/x")
    assert "hunter22" not in str(caught.value)
