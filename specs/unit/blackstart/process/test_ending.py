"""Each thing is ended its own way: Postgres by a signal its children hear, containers and faults by their commands."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from blackstart.cluster.waiting import eventually
from blackstart.process import Ending, environ_of
from blackstart.process import ending as ending_module
from blackstart.process.ending import end_charges
from blackstart.process.strays import Sought, end_all, find
from blackstart.record import read_ledger
from blackstart.record.ledger import owed

from .players import marked, new_mark

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from blackstart.process import Handle
    from blackstart.process.procfs import Stat

    from .conftest import Yard

WITHIN_S = 10.0


def like_postgres(mark: str) -> list[str]:
    """A postmaster whose child leads a session of its own, has no environment and works in the data folder.

    It does not quit while the folder has a file `hold`.
    """
    quits_when_let = "while test -e hold; do sleep 0.02; done; echo quit; exit 0"
    return [
        "sh",
        "-c",
        f"trap '{quits_when_let}' QUIT; env -i setsid sleep {mark} & echo up; wait; : {mark}",
    ]


def await_child_apart(handle: Handle, mark: str) -> None:
    """Its child has no environment and leads a session of its own: neither a tag nor the group's kill finds it."""

    def seen() -> list[tuple[bool, bool]]:
        children = [pid for pid in marked(mark) if pid != handle.pid]
        return [(environ_of(pid) == {}, os.getsid(pid) == pid) for pid in children]

    eventually(seen, [(True, True)], within=WITHIN_S)


def test_a_server_like_postgres_is_asked_to_quit_and_its_children_are_found_by_folder(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = new_mark()
    data = tmp_path / "data"
    data.mkdir()
    handle = yard.spawn(*like_postgres(mark), cwd=data, ending=Ending.POSTGRES)
    handle.log.wait_for("up", within=WITHIN_S)
    await_child_apart(handle, mark)
    looks: list[list[int]] = []

    def looks_first(sought: Sought, *, within: float) -> list[Stat]:
        looks.append([stat.pid for stat in find(sought)])
        (data / "hold").unlink(missing_ok=True)
        return end_all(sought, within=within)

    (data / "hold").touch()
    monkeypatch.setattr(ending_module, "end_all", looks_first)
    monkeypatch.setattr(ending_module, "POSTGRES_GRACE_S", WITHIN_S)
    ended = end_charges(owed(read_ledger(yard.run.dir)), sweep=Sought(run=yard.run.id))
    assert handle.pid not in looks[0], "the server was killed before it could answer"
    assert marked(mark) == [], "a child was left in the data folder"
    assert ended.survivors == ()
    assert handle.log.tail().splitlines()[-1] == "quit"


def test_a_kill_of_a_server_like_postgres_leaves_no_child_either(yard: Yard, tmp_path: Path) -> None:
    mark = new_mark()
    handle = yard.spawn(*like_postgres(mark), cwd=tmp_path, ending=Ending.POSTGRES)
    await_child_apart(handle, mark)
    handle.kill(within=WITHIN_S)
    assert marked(mark) == []
    assert "quit" not in handle.log.text()


def test_without_its_folder_such_a_child_is_not_found(yard: Yard, tmp_path: Path) -> None:
    mark = new_mark()
    handle = yard.spawn(*like_postgres(mark), cwd=tmp_path)
    await_child_apart(handle, mark)
    handle.kill(within=WITHIN_S)
    (left,) = marked(mark)  # the control of the two specs above
    os.kill(left, signal.SIGKILL)


def test_a_paused_server_hears_it_too(yard: Yard, tmp_path: Path) -> None:
    mark = new_mark()
    handle = yard.spawn(*like_postgres(mark), cwd=tmp_path, ending=Ending.POSTGRES)
    handle.log.wait_for("up", within=WITHIN_S)
    eventually(lambda: len(marked(mark)), 2, within=WITHIN_S)
    handle.pause()
    end_charges(owed(read_ledger(yard.run.dir)), sweep=Sought(run=yard.run.id))
    assert marked(mark) == []
    assert handle.log.tail().splitlines()[-1] == "quit"
