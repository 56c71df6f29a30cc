"""What a cluster depends on, taken away: a Postgres of one's own that stands still, refuses, or is restarted.

None of these needs an undo in the ledger: the server belongs to the spec and ends with its user.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psycopg

from blackstart.core.fault import Evidence, Finding
from blackstart.faults.fault import Fault
from blackstart.infra.own import Harm

if TYPE_CHECKING:
    from blackstart.infra.own import OwnServer

SILENT_S = 2.0  # libpq reads less as this
_PATIENT_S = 20.0  # for an answer that must come


def answer_of(url: str, *, within_s: float = SILENT_S) -> str:
    """`answers`, `refused` or `silent`: what a new client of this URL meets."""
    try:
        with contextlib.closing(psycopg.connect(url, connect_timeout=max(2, round(within_s)))) as connection:
            connection.execute("SELECT 1")
    except psycopg.errors.ConnectionTimeout:
        return "silent"
    except psycopg.OperationalError as error:
        return "silent" if "timeout" in str(error) else "refused"
    return "answers"


class _OnPostgres(Fault):
    family = "dependency"
    _verb = ""
    _met = ""

    def __init__(self, server: OwnServer) -> None:
        self._server = server

    def describe(self) -> str:
        """`postgres-own-1 paused`."""
        return f"{self._server.node} {self._verb}"

    def confirm(self) -> Evidence:
        """What a new client meets is what the fault is about."""
        met = answer_of(self._server.url())
        return Evidence(Finding.CONFIRMED if met == self._met else Finding.MISMATCH, f"a new client: {met}")

    def confirm_lifted(self) -> Evidence:
        """A new client is answered."""
        met = answer_of(self._server.url(), within_s=_PATIENT_S)
        return Evidence(Finding.CONFIRMED if met == "answers" else Finding.MISMATCH, f"a new client: {met}")


class PostgresPaused(_OnPostgres):
    """Every process of it stands still: connections are accepted by the kernel and nothing answers."""

    _verb = "paused"
    _met = "silent"

    def inject(self) -> None:
        """SIGSTOP to all of it, confirmed by the kernel."""
        self._server.pause()

    def lift(self) -> None:
        """SIGCONT to all of it."""
        self._server.resume()


class PostgresRefused(_OnPostgres):
    """Its road refuses: what is live is reset, what comes is refused; the server itself is well."""

    _verb = "refused on its link"
    _met = "refused"

    def inject(self) -> None:
        """The link stops listening and tears what is live."""
        self._server.link.refuse()

    def confirm(self) -> Evidence:
        """Refused on the link while the server answers past it: else it would be another fault."""
        if answer_of(self._server.direct_url(), within_s=_PATIENT_S) != "answers":
            return Evidence(Finding.MISMATCH, "the server does not answer past its link either")
        return super().confirm()

    def lift(self) -> None:
        """The link passes again."""
        self._server.link.heal()


class PostgresDown(_OnPostgres):
    """It has ended, as `harm` says; lifting starts it on the same port with the same data."""

    _met = "refused"

    def __init__(self, server: OwnServer, *, harm: Harm = Harm.KILL) -> None:
        super().__init__(server)
        self._harm = harm
        self._verb = f"ended by {harm.value}"

    def inject(self) -> None:
        """End it."""
        self._server.kill(self._harm)

    def lift(self) -> None:
        """Start it again."""
        self._server.restart()
