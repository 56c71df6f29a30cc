"""The embedded server's commands and folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from blackstart.infra.binaries import PostgresBinaries, Unprivileged
from blackstart.infra.embedded import Installation, initdb_argv, memory_or, server_argv
from blackstart.infra.errors import InfraError

BINARIES = PostgresBinaries(Path("/opt/pg/bin"), "test")
HOW = Unprivileged(prefix=("unshare", "-U"))


def settings(argv: list[str]) -> dict[str, str]:
    pairs = [argv[at + 1].partition("=") for at, word in enumerate(argv) if word == "-c"]
    return {name: value for name, _, value in pairs}


def test_the_server_listens_on_loopback_alone_and_gives_up_nothing_that_a_kill_would_lose() -> None:
    argv = server_argv(BINARIES, HOW, Path("/data"), 5555)
    told = settings(argv)
    assert argv[:3] == ["unshare", "-U", "/opt/pg/bin/postgres"]
    assert (told["listen_addresses"], told["unix_socket_directories"]) == ("127.0.0.1", "")
    assert told["fsync"] == "off"
    assert "synchronous_commit" not in told, "committed rows would be lost on kill -9"
    assert told["dynamic_shared_memory_type"] == "mmap", "segments would outlive a killed server"
    assert int(told["max_connections"]) >= 300


def test_initdb_asks_for_scram_and_is_never_told_the_password_on_its_command_line() -> None:
    argv = initdb_argv(BINARIES, HOW, Path("/data"), Path("/secret.pw"))
    assert "--auth=scram-sha-256" in argv
    assert "--pwfile=/secret.pw" in argv
    assert not any("trust" in word for word in argv)


def test_data_goes_to_memory_only_where_it_can_be_written_and_has_room(tmp_path: Path) -> None:
    fallback = tmp_path / "run"
    assert memory_or(fallback, memory=tmp_path, room_bytes=1) == tmp_path
    assert memory_or(fallback, memory=tmp_path, room_bytes=2**62) == fallback
    assert memory_or(fallback, memory=tmp_path / "absent") == fallback


def test_an_initdb_that_fails_says_what_it_said(tmp_path: Path) -> None:
    installed = Installation.find()
    folder = tmp_path / "data"
    folder.mkdir()
    with pytest.raises(FileExistsError):
        installed.make_data_folder(folder, within_s=60)
    broken = Installation(
        installed.binaries, Unprivileged(prefix=("sh", "-c", "echo no room >&2; exit 3")), "x"
    )
    with pytest.raises(InfraError, match=r"initdb of .* failed: no room; try: "):
        broken.make_data_folder(tmp_path / "other", within_s=60)
    assert not list(tmp_path.glob("*.pw")), "the password's file was left"


def test_a_copy_that_fails_says_so(tmp_path: Path) -> None:
    installed = Installation.find()
    with pytest.raises(InfraError, match=r"was not copied: .*No such file"):
        installed.copy_data_folder(tmp_path / "absent", tmp_path / "new", within_s=60)
