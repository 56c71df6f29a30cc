"""What a person is told when a database cannot be had: the thing, what came back, the remedy; never a password."""

from __future__ import annotations

BAD_INPUT = 2
SETUP_FAILURE = 4


class InfraError(Exception):
    """Infrastructure that could not be provided. Nothing else is tried in its place."""

    exit_code = SETUP_FAILURE

    def __init__(self, thing: str, value: object, *, wrong: str, remedy: str) -> None:
        """`thing=value: wrong; try: remedy`; the caller has redacted `value` and `wrong`."""
        self.thing = thing
        self.wrong = wrong
        self.remedy = remedy
        super().__init__(f"{thing}={value}: {wrong}; try: {remedy}")


class BadPostgresOption(InfraError, ValueError):
    """A choice of Postgres that names no provider: bad input, told before anything starts."""

    exit_code = BAD_INPUT
