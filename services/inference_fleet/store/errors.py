"""What the database can refuse, kept apart from what it answers: an error is never an empty list."""

from __future__ import annotations


class StoreError(Exception):
    """The umbrella of this package's errors."""


class DatabaseUnavailable(StoreError):
    """The database could not be asked: no connection, a cut one, or no answer in time.

    It says nothing about any row. Whoever catches it keeps what it believed before.
    """


class DatabaseRefused(StoreError):
    """The settings for the database are wrong: its URL, or the password in it. Asking again gets the same answer."""


class DatabaseTooOld(StoreError):
    """The server runs a Postgres this schema does not support."""


class MigrationChanged(StoreError):
    """A migration this database has applied reads differently now."""
