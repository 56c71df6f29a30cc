"""Postgres in a real container; without an engine only what needs none."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import psycopg
import pytest
from testcontainers.core.config import testcontainers_config

from blackstart.cluster.waiting import eventually
from blackstart.infra import Budgets, Infra, InfraError, admin
from blackstart.infra import container as provider
from blackstart.infra.choice import IMAGE_VARIABLE, image_name
from blackstart.infra.container import usable_engine
from blackstart.infra.engine import RUN_LABEL, Engine, find_wanted_engine
from blackstart.infra.names import container_name
from blackstart.infra.server import PostgresServer
from blackstart.process import Guardian, Spawner
from blackstart.record import Journal, Run

from .played_engine import fake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WITHIN_S = 10.0
BUDGETS = Budgets(start_s=20.0)


@pytest.fixture
def engine() -> Engine:
    found = find_wanted_engine(remark=print)
    assert isinstance(found, Engine), found
    return found


@pytest.fixture
def infra(tmp_path: Path) -> Iterator[Infra]:
    run = Run.create(tmp_path, argv=["spec"])
    Guardian.start(run)
    with (
        Guardian.connect(run) as lease,
        Journal(run, writer="spec") as journal,
        Spawner(run, journal, lease) as spawner,
        Infra(run, spawner, "container", budgets=BUDGETS) as own,
    ):
        yield own


def of_run(engine: Engine, run_id: str) -> list[str]:
    return [container["Names"][0] for container in engine.containers(label=f"{RUN_LABEL}={run_id}")]


@pytest.mark.needs("container")
@pytest.mark.holds("B-177", "B-199", "B-210")
def test_a_run_has_one_server_in_a_container_of_its_name_with_no_reaper_beside_it(
    engine: Engine, infra: Infra
) -> None:
    server = infra.postgres
    run_id = infra._run.id
    assert of_run(engine, run_id) == [f"/{container_name(run_id)}"]
    assert testcontainers_config.ryuk_disabled
    assert not [tag for tag in engine.images() if "ryuk" in tag]
    database = infra.database()
    with psycopg.connect(database.url) as connection:
        assert connection.info.server_version == server.version >= admin.OLDEST
    assert f"container ({image_name()} on engine {engine.version}): 1 databases" in infra.report()
    assert infra._run.facts()["providers"]["postgres"]["provider"] == "container"


@pytest.mark.needs("container")
def test_a_container_that_does_not_come_up_is_removed_and_its_log_kept(
    engine: Engine, infra: Infra, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider, "_SETTINGS", ("-c", "no_such_setting=1"))
    with pytest.raises(InfraError, match=r"the container has ended; try: read "):
        _ = infra.postgres
    assert of_run(engine, infra._run.id) == []
    assert "no_such_setting" in (infra._run.dir / "infra" / "postgres.container.log").read_text()


@pytest.mark.needs("container")
def test_a_killed_user_leaves_no_container(engine: Engine, tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from blackstart.infra import Infra
from blackstart.process import Guardian, Spawner
from blackstart.record import Journal, Run
run = Run.create(Path(sys.argv[1]), argv=["spec"])
Guardian.start(run)
lease = Guardian.connect(run)
infra = Infra(run, Spawner(run, Journal(run, writer="user"), lease), "container")
infra.postgres
print(run.id, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    ) as user:
        assert user.stdout is not None
        run_id = user.stdout.readline().strip()
        assert len(of_run(engine, run_id)) == 1, "control: it was there"
        user.kill()
    eventually(lambda: of_run(engine, run_id), [], within=WITHIN_S)


@pytest.mark.needs("container")
def test_an_image_that_is_not_there_is_not_pulled_but_told(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    have = image_name()
    monkeypatch.setenv(IMAGE_VARIABLE, "blackstart/no-such-image:1")
    with pytest.raises(InfraError, match="image=blackstart/no-such-image:1: is not on the engine") as caught:
        usable_engine(image_name(), remark=print)
    assert "or docker pull blackstart/no-such-image:1" in str(caught.value)
    assert f"{IMAGE_VARIABLE}={have}" in str(caught.value), "what to set is not said"
    assert usable_engine(have, remark=print) == engine


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        (
            ("debian:12", "me/postgres:18"),
            "try: BLACKSTART_POSTGRES_IMAGE=me/postgres:18, or docker pull x:1",
        ),
        (("debian:12",), "try: BLACKSTART_POSTGRES_IMAGE=an image it has, or docker pull x:1"),
    ],
)
def test_the_remedy_for_a_missing_image_says_what_to_set(
    tags: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is a double: what a real one has differs from machine to machine."""
    played = SimpleNamespace(address="unix:///e", has_image=lambda _: False, images=lambda: tags)
    monkeypatch.setattr(provider, "find_wanted_engine", lambda **_: played)
    with pytest.raises(InfraError) as caught:
        usable_engine("x:1", remark=print)
    assert str(caught.value).endswith(said)


@pytest.mark.parametrize("when", ["at-the-runs-end", "that-did-not-come-up"])
def test_a_container_is_removed_by_its_name(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is a double, and so is the server: what is looked at is what the engine was asked to remove, and when."""
    comes_up = when == "at-the-runs-end"
    run = Run.create(tmp_path / "runs", argv=["spec"])
    name = container_name(run.id)
    removal = f"DELETE /containers/{name}"
    answers = {"GET /version": (200, b'{"Version":"1"}'), "GET /containers/json": (200, b"[]")}
    answers |= {"GET /images/me/postgres%3A1/json": (200, b"{}"), removal: (204, b"")}

    def started(*_: object, **given: object) -> PostgresServer:
        assert given["name"] == name
        if not comes_up:
            raise RuntimeError("it ended")
        return PostgresServer(
            provider="container", version=0, host="h", port=1, user="u", password="p", origin="o"
        )

    monkeypatch.setattr(provider, "_start", started)
    monkeypatch.setenv(IMAGE_VARIABLE, "me/postgres:1")
    with fake(tmp_path, answers) as played:
        monkeypatch.setenv("DOCKER_HOST", played.address)
        Guardian.start(run)
        with (
            Guardian.connect(run) as lease,
            Journal(run, writer="spec") as journal,
            Spawner(run, journal, lease) as spawner,
        ):
            if comes_up:
                provider.start_container(run, spawner, budgets=BUDGETS)
            else:
                with pytest.raises(InfraError, match="did not start: RuntimeError: it ended"):
                    provider.start_container(run, spawner, budgets=BUDGETS)
            assert played.asked.count(removal) == int(not comes_up), (
                "it is kept exactly as long as it is used"
            )
        eventually(lambda: played.asked.count(removal), 1, within=WITHIN_S)


def test_without_an_engine_a_container_is_an_error_and_nothing_else_is_taken(
    infra: Infra, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///absent/docker.sock")
    with pytest.raises(InfraError, match=r"postgres=container: no container engine: .*; try: start one"):
        infra.database()
    assert "never asked for" in infra.report()
