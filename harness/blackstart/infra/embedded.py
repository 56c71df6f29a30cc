"""Postgres from the wheel's programs, on a data folder of the run's own: the server every run can have.

| choice                      | why                                                                                |
|-----------------------------|------------------------------------------------------------------------------------|
| data on /dev/shm, fsync off | a server and its databases in milliseconds; kill -9 of Postgres loses nothing by it |
| never synchronous_commit=off| that one does lose committed rows on kill -9                                         |
| TCP on 127.0.0.1, no socket | the path a service takes is the path that is tested; no names in shared folders      |
| dynamic shared memory: mmap | segments lie in the data folder and go with it, also after kill -9                    |
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from blackstart.infra.binaries import PostgresBinaries, Unprivileged, embedded_binaries, unprivileged
from blackstart.infra.errors import InfraError

if TYPE_CHECKING:
    from collections.abc import Mapping

USER = "postgres"
HOST = "127.0.0.1"
_MEMORY = Path("/dev/shm")  # noqa: S108 - the machine's memory file system; the folder made in it is 0700
_ROOM_BYTES = 768 * 1024 * 1024
_CONNECTIONS = 400
_SETTINGS: Mapping[str, str] = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": str(_CONNECTIONS),
    "shared_buffers": "64MB",
    "dynamic_shared_memory_type": "mmap",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "password_encryption": "scram-sha-256",
    "log_timezone": "UTC",
    "timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%a@%d ",
    "log_lock_waits": "on",
    "log_checkpoints": "off",  # every clone of a template asks for one
}
ENVIRONMENT: Mapping[str, str] = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}


def initdb_argv(
    binaries: PostgresBinaries, how: Unprivileged, data_dir: Path, password_file: Path
) -> list[str]:
    """The command that makes a data folder."""
    return [
        *how.prefix,
        binaries.program("initdb"),
        f"--pgdata={data_dir}",
        f"--username={USER}",
        f"--pwfile={password_file}",
        "--auth=scram-sha-256",
        "--encoding=UTF8",
        "--locale=C",
        "--no-sync",
        "--no-instructions",
    ]


def server_argv(binaries: PostgresBinaries, how: Unprivileged, data_dir: Path, port: int) -> list[str]:
    """The command of the server itself: it stays in the foreground and logs to stderr."""
    settings = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
    return [*how.prefix, binaries.program("postgres"), "-D", str(data_dir), "-p", str(port), *settings]


def memory_or(fallback: Path, *, memory: Path = _MEMORY, room_bytes: int = _ROOM_BYTES) -> Path:
    """Where data folders go: the memory file system when it is writable and has room, else `fallback`."""
    try:
        free = shutil.disk_usage(memory).free
    except OSError:
        return fallback
    return memory if free >= room_bytes and os.access(memory, os.W_OK | os.X_OK) else fallback


@dataclass(frozen=True)
class Installation:
    """The programs, how they may be run, and the password all data folders of a run share."""

    binaries: PostgresBinaries
    how: Unprivileged
    password: str = field(repr=False)

    @classmethod
    def find(cls, *, password: str = "") -> Installation:
        """What is installed here, with a new password unless one is handed in."""
        binaries = embedded_binaries()
        return cls(binaries, unprivileged(binaries), password or secrets.token_urlsafe(18))

    def make_data_folder(self, data_dir: Path, *, within_s: float) -> None:
        """Run initdb. The password passes through a file that is gone before this returns."""
        data_dir.mkdir(mode=0o700)
        self.how.own(data_dir)
        with tempfile.NamedTemporaryFile(
            "w", prefix="blackstart-", suffix=".pw", dir=data_dir.parent
        ) as file:
            file.write(self.password + "\n")
            file.flush()
            if self.how.owner is not None:
                os.chown(file.name, self.how.owner, self.how.owner)
            argv = initdb_argv(self.binaries, self.how, data_dir, Path(file.name))
            try:
                done = subprocess.run(
                    argv,
                    env={**os.environ, **ENVIRONMENT},
                    cwd=data_dir.parent,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=within_s,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise _initdb_failed(data_dir, str(error)) from error
        if done.returncode != 0:
            raise _initdb_failed(data_dir, done.stderr.strip() or f"exit status {done.returncode}")

    def copy_data_folder(self, source: Path, target: Path, *, within_s: float) -> None:
        """A second data folder from one no server runs on: a tenth of what initdb takes."""
        argv = ["cp", "-a", "--reflink=auto", str(source), str(target)]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within_s, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _copy_failed(target, str(error)) from error
        if done.returncode != 0:
            raise _copy_failed(target, done.stderr.strip())


def _initdb_failed(data_dir: Path, said: str) -> InfraError:
    return InfraError(
        "postgres",
        "embedded",
        wrong=f"initdb of {data_dir} failed: {said}",
        remedy="free space there, or ci/setup",
    )


def _copy_failed(data_dir: Path, said: str) -> InfraError:
    return InfraError(
        "postgres",
        "embedded",
        wrong=f"data folder {data_dir} was not copied: {said}",
        remedy="free space there",
    )
