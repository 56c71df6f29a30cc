"""The run's folder in memory, and what may be removed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blackstart.infra.errors import InfraError
from blackstart.infra.scratch import Scratch, removal
from blackstart.record import ChargeKind, Run, read_ledger

if TYPE_CHECKING:
    from specs.unit.blackstart.infra.conftest import Rig

WITHIN_S = 10.0


@pytest.mark.parametrize(
    "folder",
    ["/", "/mnt", "/home/me", "relative/blackstart-x", "/mnt/../blackstart-x", "/x/blackstart-"],
)
def test_only_a_folder_of_ours_is_ever_given_to_rm(folder: str) -> None:
    with pytest.raises(ValueError, match="folder="):
        removal(Path(folder))
    assert removal(Path("/mnt/blackstart-r"))[-1] == "/mnt/blackstart-r", "control: ours is"


def test_the_folder_is_owed_its_end_and_is_the_same_for_all_of_the_run(tmp_path: Path) -> None:
    run = Run.create(tmp_path, argv=["spec"])
    one, other = Scratch(run, within_s=WITHIN_S), Scratch(Run.attach(run.dir), within_s=WITHIN_S)
    try:
        assert one.folder == other.folder
        assert run.facts()["scratch"] == str(one.folder)
        owed = [charge for charge in read_ledger(run.dir).values() if charge.kind is ChargeKind.UNDO]
        assert [charge.argv[-1] for charge in owed] == [str(one.folder)]
        one.count("a", server="postgres")
        other.count("b", server="postgres")
        one.count("c", server="postgres-container")
        assert (one.counted("postgres"), other.counted("postgres-container")) == (2, 1)
        one.write("secret.json", {"x": 1})
        assert (one.folder / "secret.json").stat().st_mode & 0o077 == 0
        assert other.read("secret.json") == {"x": 1}
        assert other.read("absent.json") is None
    finally:
        for path in sorted(one.folder.iterdir()):
            path.unlink()
        one.folder.rmdir()


def test_a_lock_that_is_held_too_long_is_named(rig: Rig) -> None:
    scratch = Scratch(rig.run, within_s=0.1)
    with (
        scratch.locked("x"),
        pytest.raises(InfraError, match=r"held .*x\.lock for 0.1 s; try: "),
        Scratch(rig.run, within_s=0.1).locked("x"),
    ):
        raise AssertionError("two held one lock")
    assert Scratch.found(rig.run, within_s=WITHIN_S) is not None
