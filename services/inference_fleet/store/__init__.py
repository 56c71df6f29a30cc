"""The one thing replicas share: a Postgres pool, migrations, lease rows, the reap journal."""

from inference_fleet.store.database import Connection, Database
from inference_fleet.store.errors import (
    DatabaseRefused,
    DatabaseTooOld,
    DatabaseUnavailable,
    MigrationChanged,
    StoreError,
)
from inference_fleet.store.leases import LEASE_IS_HELD, LeaseGrant, Leases
from inference_fleet.store.migrating import migrate, migrate_sync
from inference_fleet.store.reaps import MOST_REAPS, Reap, ReapAction, list_reaps, record_reap
from inference_fleet.store.statements import statement

__all__ = [
    "LEASE_IS_HELD",
    "MOST_REAPS",
    "Connection",
    "Database",
    "DatabaseRefused",
    "DatabaseTooOld",
    "DatabaseUnavailable",
    "LeaseGrant",
    "Leases",
    "MigrationChanged",
    "Reap",
    "ReapAction",
    "StoreError",
    "list_reaps",
    "migrate",
    "migrate_sync",
    "record_reap",
    "statement",
]
