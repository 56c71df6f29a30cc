"""What is known of one Postgres server: enough to reach it, to say which it is, and to see whether it lives."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit, urlunsplit


@dataclass(frozen=True, kw_only=True)
class PostgresServer:
    """A server that answered. Facts only, so that every xdist worker can hold the same ones."""

    provider: str  # embedded | container | external
    version: int  # as the server counts: 180006
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    origin: str  # which wheel, which image on which engine, or whose URL (redacted)
    data_dir: str = ""  # embedded only
    pid: int = 0  # embedded only: the postmaster
    container: str = ""  # container only: its name
    base_url: str = field(default="", repr=False)  # external only: what was given, with its parameters

    def url(self, database: str = "postgres") -> str:
        """A connection URL for one database; it holds the password."""
        if self.base_url:
            return urlunsplit(urlsplit(self.base_url)._replace(path="/" + quote(database, safe="")))
        login = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}"
        return f"postgresql://{login}@{self.host}:{self.port}/{quote(database, safe='')}"

    @property
    def release(self) -> str:
        """`18.6`."""
        return f"{self.version // 10000}.{self.version % 10000}"

    @property
    def pids(self) -> tuple[int, ...]:
        """Processes that work in the data folder, the postmaster first; empty when the server is not ours."""
        return processes_of(Path(self.data_dir)) if self.data_dir else ()

    def facts(self) -> dict[str, Any]:
        """For run.json and the journal: no password, no URL that holds one."""
        kept = asdict(self)
        del kept["password"], kept["base_url"]
        return {name: value for name, value in kept.items() if value not in {"", 0}}

    def describe(self) -> str:
        """One phrase for people: version, provider, where it comes from."""
        return f"Postgres {self.release}, {self.provider} ({self.origin})"

    def to_state(self) -> dict[str, Any]:
        """Everything, for a file that only this user can read."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The reverse of `to_state`."""
        return cls(**state)


def processes_of(folder: Path) -> tuple[int, ...]:
    """Pids whose working folder is `folder`: a backend keeps no tag in its environment, but it keeps this."""
    found: list[int] = []
    wanted = os.path.realpath(folder)
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted of several hundred entries
        if not entry.isdigit():
            continue
        try:
            where = str(Path(f"/proc/{entry}/cwd").readlink())
        except OSError:  # gone since, or somebody else's
            continue
        if where.removesuffix(" (deleted)") == wanted:
            found.append(int(entry))
    return tuple(sorted(found))
