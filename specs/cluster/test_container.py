"""A fleet on a Postgres in a container of a real engine, beside the run's own, and the summary that says so."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

INNER = """
import pytest

@pytest.mark.cluster(frontends=1, workers=0, postgres="container")
def test_in_a_container(fleet):
    assert fleet.postgres.provider == "container"
    assert fleet.get("/api/nodes", via=0).status_code == 200

@pytest.mark.needs("container")
def test_on_the_runs(infra):
    assert infra.database().server.provider == "embedded"
"""


@pytest.mark.needs("container")
@pytest.mark.holds("B-177")
def test_the_summary_counts_the_fleets_whose_postgres_was_in_a_container_with_engine_and_image(
    pytester: pytest.Pytester, tmp_path: Path
) -> None:
    pytester.makepyfile(test_inner=INNER)
    done = pytester.runpytest_subprocess(
        *("-p", "no:cacheprovider", "--bs-postgres", "embedded", "--bs-run-dir", str(tmp_path))
    )
    told = done.stdout.str()
    assert done.parseoutcomes() == {"passed": 2}, told
    # one of two, although both need an engine: what counts is where a fleet had its database
    assert re.search(r"1 cluster specs on Postgres in a container: engine \S+ at \S+, image \S+", told), told
    assert re.search(r"Postgres \S+, embedded \(.*\): 1 databases", told), told
    assert re.search(r"Postgres \S+, container \(\S+ on engine \S+\): 1 databases", told), told
    run = Path(re.search(r"^run +(\S+)$", told, re.MULTILINE)[1])  # type: ignore[index]  # told above
    providers = json.loads((run / "run.json").read_text())["providers"]
    assert providers["postgres"]["provider"] == "embedded"
    assert providers["postgres-container"]["provider"] == "container"
    assert " on engine " in providers["postgres-container"]["origin"]


def test_a_fleet_that_wants_a_container_is_skipped_by_name_where_there_is_no_engine(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{pytester.path}/no-engine.sock")
    monkeypatch.delenv("BLACKSTART_REQUIRE", raising=False)
    pytester.makepyfile(test_inner=INNER)
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rs", "-k", "in_a_container")
    assert done.parseoutcomes() == {"skipped": 1, "deselected": 1}, done.stdout.str()
    assert "needs container: no container engine" in done.stdout.str()
