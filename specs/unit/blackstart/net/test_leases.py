"""A port belongs to one lease at a time, on the whole machine, and to nobody once its holder is dead."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blackstart.net import LeaseFolderError, NoPorts, held_leases, lease_ports
from blackstart.net import leases as leases_module
from blackstart.net.leases import local_port_range, usable_range
from blackstart.record import Journal, Run, read_journal

if TYPE_CHECKING:
    from pathlib import Path

ON_A_BUSY_MACHINE = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
BLOCKS, LENGTH = 200, 3
LEASES_MANY = f"""
import json, sys
from blackstart.net import leases
if sys.argv[1] == "without":
    leases._lock = lambda *_: True
    leases._unlock = lambda *_: None
leases.os.getpid = lambda: 1  # both start at the same port
print("go", flush=True)
sys.stdin.readline()
held = [leases.lease_ports({LENGTH}, run="r", purpose="p") for _ in range({BLOCKS})]
print(json.dumps([lease.ports for lease in held]), flush=True)
sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's folder is shared with every run; these specs want one of their own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def lease_in_two_processes(lock: str) -> tuple[set[int], set[int]]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LEASES_MANY, lock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
    leased = []
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        assert process.stdout is not None
        leased.append({port for block in json.loads(process.stdout.readline()) for port in block})
    for process in processes:
        process.communicate()
    return leased[0], leased[1]


@pytest.mark.holds("H-37", "B-192")
def test_two_processes_leasing_at_once_never_get_one_port() -> None:
    one, other = lease_in_two_processes("with")
    assert one & other == set(), "two leases hold one port"
    assert len(one) == len(other) == BLOCKS * LENGTH


def test_without_the_lock_they_do() -> None:
    one, other = lease_in_two_processes("without")
    assert one & other


@pytest.mark.holds("B-192", "H-38", "H-40")
def test_a_block_is_contiguous_bindable_on_loopback_and_below_the_ephemeral_range() -> None:
    with lease_ports(8, run="r", purpose="p") as lease:
        assert lease.host == "127.0.0.1"
        assert lease.ports == tuple(range(lease.ports[0], lease.ports[0] + 8))
        assert lease.ports[-1] < local_port_range()[0], "an outgoing connection may be given a leased port"
        for port in lease.ports:
            with socket.socket() as server:
                server.bind((lease.host, port))


def test_two_leases_of_one_process_are_apart_until_released() -> None:
    leases = [lease_ports(5, run="r", purpose="p") for _ in range(20)]
    ports = [port for lease in leases for port in lease.ports]
    assert len(set(ports)) == 100
    before = held_leases()
    assert {lease.ports[0] for lease in leases} <= set(before)
    assert before[leases[0].ports[0]] == f"5 from {leases[0].ports[0]} for p"
    for lease in leases:
        lease.release()
        lease.release()
        assert not lease.held
    assert set(before) - set(held_leases()) == {lease.ports[0] for lease in leases}
    with lease_ports(5, run="r", purpose="p") as again:
        assert set(again.ports) <= set(ports)


def test_a_port_that_is_bound_is_passed_over() -> None:
    with lease_ports(4, run="r", purpose="p") as lease:
        ports = lease.ports
    with socket.socket() as server:
        server.bind(("127.0.0.1", ports[2]))
        server.listen()
        with lease_ports(4, run="r", purpose="p") as other:
            assert ports[2] not in other.ports
            assert other.ports[0] == ports[3]


@pytest.mark.holds("H-37")
def test_the_leases_of_a_killed_process_are_free_again() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LEASES_MANY, "with"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "go\n"
        theirs = json.loads(process.stdout.readline())
        first, count = theirs[0][0], BLOCKS * LENGTH
        file = os.open(leases_module._lock_path(), os.O_RDWR)
        assert not leases_module._lock(file, first, count)  # control: taken while it lives
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert leases_module._lock(file, first, count)
        os.close(file)


def test_a_child_does_not_keep_its_parents_lease() -> None:
    lease = lease_ports(1, run="r", purpose="p")
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False):  # ends with its stdin
        lease.release()
        file = os.open(leases_module._lock_path(), os.O_RDWR)
        assert leases_module._lock(file, lease.ports[0], 1)
        os.close(file)


def test_the_lock_file_is_never_unlinked() -> None:
    with lease_ports(1, run="r", purpose="p"):
        inode = leases_module._lock_path().stat().st_ino
    with lease_ports(1, run="r", purpose="p"):
        assert leases_module._lock_path().stat().st_ino == inode


def test_exhaustion_is_an_error_that_says_who_has_the_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    with lease_ports(4, run="r", purpose="p") as lease:
        monkeypatch.setattr(
            leases_module, "usable_range", lambda *_: range(lease.ports[0], lease.ports[-1] + 1)
        )
        with pytest.raises(
            NoPorts, match=r"no 2 contiguous ports for web are free in .*leased by other runs"
        ):
            lease_ports(2, run="r", purpose="web")
    with socket.socket() as server:
        server.bind(("127.0.0.1", lease.ports[1]))
        server.listen()
        with pytest.raises(NoPorts, match=rf"{lease.ports[1]} by pid {os.getpid()} "):
            lease_ports(4, run="r", purpose="web")


@pytest.mark.parametrize("count", [0, -1, 100_000])
def test_a_count_that_makes_no_sense_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"count={count}"):
        lease_ports(count, run="r", purpose="p")


@ON_A_BUSY_MACHINE
@given(st.integers(1, 65535), st.integers(1, 65535))
def test_no_usable_port_is_one_the_kernel_hands_out(one: int, other: int) -> None:
    lowest, highest = sorted((one, other))
    try:
        ports = usable_range(lowest, highest)
    except NoPorts:
        return
    assert not set(ports) & set(range(lowest, highest + 1))
    assert ports.start >= 1024
    assert ports.stop <= 65536


def test_a_machine_whose_ephemeral_range_is_everything_is_named() -> None:
    with pytest.raises(NoPorts, match=r"1024 to 65535 leaves no .*try: sysctl"):
        usable_range(1024, 65535)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / f"blackstart-ports-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(LeaseFolderError, match="mode 0700"):
        lease_ports(1, run="r", purpose="p")
    folder.rmdir()
    folder.symlink_to(tmp_path)
    with pytest.raises(LeaseFolderError, match="is not a folder of uid"):
        lease_ports(1, run="r", purpose="p")


def test_a_lease_is_noted_in_the_journal(tmp_path: Path) -> None:
    run = Run.create(tmp_path, argv=["pytest"])
    with (
        Journal(run, writer="w") as journal,
        lease_ports(2, run=run.id, purpose="web", journal=journal) as lease,
    ):
        (event,) = read_journal(run.dir)
        assert event.data == {"first": lease.ports[0], "count": 2, "purpose": "web"}
