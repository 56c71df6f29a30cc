"""What the page for users says a cold restart destroys is destroyed, and what it says survives does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from blackstart.fleet import Fleet

PAGE = (Path(__file__).parents[2] / "docs" / "your-cluster.md").read_text(encoding="utf-8")


def _row(node: str) -> tuple[str, str]:
    """What the page says of a node: destroyed, and survives."""
    [line] = [line for line in PAGE.splitlines() if line.startswith(f"| `{node}` |")]
    _, _, destroyed, survives, _ = line.split("|")
    return destroyed, survives


@pytest.mark.holds("B-183")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_cold_restarted_worker_has_lost_what_the_page_names_and_nothing_else(fleet: Fleet) -> None:
    worker, destroyed, survives = fleet.worker(0), *_row("worker-N")
    data, models = worker.place.data_dir, Path(worker.handle.environ["BLACKSTART_MODELS_DIR"])
    node = fleet.node_id(0)
    there = {path.name for path in data.iterdir()}
    assert there, "the control: it keeps something there"
    assert [name for name in there if f"`{name}`" not in destroyed and f"`{name}/`" not in destroyed] == []
    credential = (data / "node-credential").read_text()
    (data / "left-behind").write_text("x")
    kept = sorted(path.relative_to(models) for path in models.rglob("*"))
    worker.restart()
    assert (data / "node-credential").read_text() == credential, "the control: a warm restart keeps it"
    assert (data / "left-behind").exists()
    worker.restart(cold=True)
    assert (data / "node-credential").read_text() != credential
    assert not (data / "left-behind").exists()
    assert "`BLACKSTART_MODELS_DIR`" in survives
    assert sorted(path.relative_to(models) for path in models.rglob("*")) == kept
    assert "its row in `nodes` with its id" in survives
    assert fleet.node_id(0) == node


@pytest.mark.holds("B-183")
@pytest.mark.cluster(frontends=1, workers=1)
def test_a_replica_keeps_nothing_in_its_folder_but_what_the_page_names(fleet: Fleet) -> None:
    destroyed, survives = _row("frontend-N")
    data = fleet.frontend(0).place.data_dir
    assert [path.name for path in data.rglob("*") if f"`{path.name}`" not in destroyed] == []
    assert "in Postgres" in survives
    session, ids = fleet.admin.cookie, fleet.roster(via=0).ids
    fleet.frontend(0).restart(cold=True)
    assert fleet.get("/api/nodes", via=0).status_code == 200, f"the session {session[:4]}... is gone"
    assert fleet.roster(via=0).ids == ids
    # the control: without a secret it was given, it makes the one the page names, and that is in the folder
    fleet.frontend(0).kill()
    fleet.frontend(0).set_env(BLACKSTART_AUTH_HMAC_SECRET="")
    fleet.frontend(0).start()
    assert [path.name for path in data.iterdir()] == [".hmac_secret"]
