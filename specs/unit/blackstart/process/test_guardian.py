"""No orphans: whoever is killed, what it started ends within two seconds, and nobody else's does."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.process import Guardian, GuardianGone
from blackstart.process.guardian import in_order
from blackstart.process.wire import address
from blackstart.record import ChargeKind, Ledger, Run, identity_of, read_journal, read_ledger
from blackstart.record.ledger import owed

from .players import FAMILIES, TAGGED, Player, marked, new_mark, tagged

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Yard

ORPHANS_WITHIN_S = 2.0
CONTAINERS_WITHIN_S = 10.0
WITHIN_S = 10.0


def gone(pid: int) -> bool:
    return identity_of(pid) is None


@pytest.mark.holds("H-11", "H-9", "B-177")
def test_a_killed_owner_leaves_no_process_and_no_guardian(tmp_path: Path) -> None:
    mark = new_mark()
    with Player.start("owner", tmp_path, mark) as owner:
        assert len(marked(mark)) == FAMILIES
        assert len(tagged("BLACKSTART_RUN", owner.facts["run"])) == TAGGED
        assert len(tagged("BLACKSTART_USER", owner.pid)) == TAGGED
        owner.kill()
        eventually(lambda: marked(mark), [], within=ORPHANS_WITHIN_S)
        eventually(lambda: gone(owner.guardian), True, within=ORPHANS_WITHIN_S)
        assert owed(read_ledger(owner.run_dir)) == []


@pytest.mark.holds("H-11")
def test_a_killed_user_takes_its_own_with_it_and_nothing_else(tmp_path: Path) -> None:
    owners, users, shared = new_mark(), new_mark(), new_mark()
    with (
        Player.start("owner", tmp_path, owners) as owner,
        Player.start("user", owner.run_dir, users, shared) as user,
    ):
        assert len(marked(users)) == FAMILIES
        assert len(marked(shared)) == 1
        assert len(tagged("BLACKSTART_USER", user.pid)) == TAGGED
        user.kill()
        eventually(lambda: marked(users), [], within=ORPHANS_WITHIN_S)
        eventually(lambda: owed(read_ledger(owner.run_dir), user=user.pid), [], within=WITHIN_S)
        assert len(marked(owners)) == FAMILIES, "the owner's own were ended too"
        assert len(marked(shared)) == 1, "what the run shares was ended with one user"
        assert owner.ask("spawn") == "spawned"
        owner.kill()
        eventually(lambda: marked(owners) + marked(shared), [], within=ORPHANS_WITHIN_S)


def test_an_owner_killed_before_its_users_takes_all_of_the_run(tmp_path: Path) -> None:
    owners, users = new_mark(), new_mark()
    with (
        Player.start("owner", tmp_path, owners) as owner,
        Player.start("user", owner.run_dir, users) as user,
    ):
        assert len(marked(users)) == FAMILIES
        owner.kill()
        eventually(lambda: marked(owners) + marked(users), [], within=ORPHANS_WITHIN_S)
        assert user.ask("spawn").startswith("GuardianGone")
        assert marked(users) == []


def test_an_owner_that_says_goodbye_leaves_the_run_to_the_others(tmp_path: Path) -> None:
    owners, users = new_mark(), new_mark()
    with (
        Player.start("owner", tmp_path, owners) as owner,
        Player.start("user", owner.run_dir, users) as user,
    ):
        assert len(marked(users)) == FAMILIES
        owner.leave()
        eventually(lambda: marked(owners), [], within=ORPHANS_WITHIN_S)
        assert len(marked(users)) == FAMILIES
        assert user.ask("spawn") == "spawned"
        user.leave()
        eventually(lambda: marked(users), [], within=ORPHANS_WITHIN_S)
        eventually(lambda: gone(owner.guardian), True, within=ORPHANS_WITHIN_S)


def test_signals_meant_for_the_run_do_not_end_its_guardian(tmp_path: Path) -> None:
    mark = new_mark()
    with Player.start("owner", tmp_path, mark) as owner:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            os.kill(owner.guardian, number)
        assert owner.ask("spawn") == "spawned"
        owner.kill()
        eventually(lambda: marked(mark), [], within=ORPHANS_WITHIN_S)
        eventually(lambda: gone(owner.guardian), True, within=ORPHANS_WITHIN_S)
    ends = [event for event in read_journal(owner.run_dir) if event.data.get("what") == "guardian ends"]
    assert sorted(ends[0].data["signals"]) == [1, 2, 15]


def test_the_guardian_has_a_session_of_its_own_and_is_nobodys_child(own_yard: Yard) -> None:
    guardian = own_yard.lease.guardian_pid
    assert os.getsid(guardian) != os.getsid(0)
    assert os.getpgid(guardian) != os.getpgid(0)
    assert subprocess.run(["pgrep", "-P", str(os.getpid()), "-f", "guardian"], check=False).returncode == 1


def test_a_killed_guardian_is_noticed_by_the_next_spawn(own_yard: Yard) -> None:
    mark = new_mark()
    own_yard.spawn("sleep", mark)
    os.kill(own_yard.lease.guardian_pid, signal.SIGKILL)
    eventually(lambda: own_yard.lease.alive, False, within=WITHIN_S)
    with pytest.raises(GuardianGone, match=f"run {own_yard.run.id}: its guardian is not there"):
        own_yard.spawn("sleep", mark, node="late")
    assert len(marked(mark)) == 1, "a process was started that nobody would end"
    (first,) = list(marked(mark))
    os.kill(first, signal.SIGKILL)


def test_what_is_no_process_is_ended_by_its_command_and_undone_newest_first(
    own_yard: Yard, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    user = os.getpid()
    ledger = own_yard.spawner.ledger
    for number in (1, 2, 3):
        ledger.intend(ChargeKind.UNDO, user=user, argv=["sh", "-c", f"echo undo-{number} >>{told}"])
    ledger.ended(ledger.intend(ChargeKind.UNDO, user=user, argv=["sh", "-c", f"echo done-already >>{told}"]))
    ledger.intend(ChargeKind.CONTAINER, user=user, argv=["sh", "-c", f"echo removed >{told}.container"])
    ledger.intend(ChargeKind.UNDO, user=None, argv=["no-such-command"])
    own_yard.lease.close()
    eventually(lambda: gone(own_yard.lease.guardian_pid), True, within=CONTAINERS_WITHIN_S)
    assert told.read_text().split() == ["undo-3", "undo-2", "undo-1"]
    assert (tmp_path / "told.container").read_text() == "removed\n"
    assert "no-such-command" in own_yard.events("harness-failure")[0].data["text"]
    assert owed(read_ledger(own_yard.run.dir)) == []


def test_a_run_folder_that_is_deleted_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    mark = new_mark()
    with Player.start("owner", tmp_path, mark) as owner:
        subprocess.run(["rm", "-r", owner.run_dir], check=True)
        owner.kill()
        eventually(lambda: gone(owner.guardian), True, within=ORPHANS_WITHIN_S)
        left = marked(mark)  # the wiped one carries no tag: only the ledger knows its session
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert len(left) == 0, "the ledger went with the folder"


def test_a_guardian_says_nothing_to_those_who_did_not_say_hello(own_yard: Yard) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
        stranger.settimeout(WITHIN_S)
        stranger.connect(address(own_yard.run.id))
        stranger.send(b'{"op":"admit"}')
        assert b'"ok":false' in stranger.recv(4096)
        stranger.send(b'{"op":"hello","pid":1,"started":1}')
        assert b"not who the kernel says" in stranger.recv(4096)
        stranger.send(b"[" * 1000)
        assert stranger.recv(4096) == b""
    assert own_yard.spawn("true").wait(within=WITHIN_S) is not None


CONNECTS_AS_NOBODY = """
import os, socket, sys
os.setuid(65534)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as stranger:
    stranger.settimeout(10)
    stranger.connect(bytes.fromhex(sys.argv[1]))
    try:
        stranger.send(b'{"op":"admit"}')
        print(stranger.recv(4096))
    except OSError:
        print(b"")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_another_user_of_the_machine_is_refused(own_yard: Yard) -> None:
    told = subprocess.run(
        [sys.executable, "-c", CONNECTS_AS_NOBODY, address(own_yard.run.id).hex()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "b''"
    assert any(event.data["what"] == "refused a connection" for event in own_yard.events("mark"))


def test_connecting_to_a_run_without_a_guardian_is_a_harness_failure(tmp_path: Path) -> None:
    run = Run.create(tmp_path, argv=["pytest"])
    with pytest.raises(GuardianGone, match="its guardian is not there"):
        Guardian.connect(run)


def test_a_guardian_that_cannot_start_says_why(tmp_path: Path) -> None:
    run = Run.create(tmp_path, argv=["pytest"])
    (run.dir / "run.json").unlink()
    with pytest.raises(GuardianGone, match=r"did not start.*holds no readable"):
        Guardian.start(run)


def test_a_user_with_two_connections_is_gone_when_both_are(own_yard: Yard) -> None:
    mark = new_mark()
    own_yard.spawn("sleep", mark)
    second = Guardian.connect(own_yard.run)
    second.close()
    assert own_yard.spawn("true", node="asks").wait(within=WITHIN_S) is not None
    with Ledger(own_yard.run.dir):
        eventually(
            lambda: [e.data["what"] for e in own_yard.events("mark")].count("user leaves"), 1, within=WITHIN_S
        )
    assert len(marked(mark)) == 1


def test_a_full_disk_keeps_nothing_from_being_ended(tmp_path: Path) -> None:
    mark = new_mark()
    with Player.start("owner", tmp_path, mark) as owner:
        assert len(marked(mark)) == FAMILIES
        resource.prlimit(owner.guardian, resource.RLIMIT_FSIZE, (0, 0))  # every write fails from here on
        owner.kill()
        eventually(lambda: marked(mark), [], within=ORPHANS_WITHIN_S)
        eventually(lambda: gone(owner.guardian), True, within=ORPHANS_WITHIN_S)
        assert owed(read_ledger(owner.run_dir))  # control: it could not write them off


def test_a_goodbye_counts_before_the_death_that_came_with_it_and_who_comes_before_both() -> None:
    owner, listener, user, others = 9, 3, 5, 7
    woken = [(owner, 1), (user, 1), (listener, 1), (others, 1)]
    told = in_order(woken, listener=listener, users={user: "its connection"})
    assert told == [listener, user, owner, others], "who said goodbye is taken for one that died without"
