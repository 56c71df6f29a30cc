"""`kill -9` of whoever runs the specs leaves nothing: of pytest alone or with its workers, or of one worker of many."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from blackstart.cluster.waiting import eventually
from blackstart.fleet.chat import body_of
from blackstart.fleet.http import client_of, json_of
from blackstart.infra.engine import RUN_LABEL, Engine, find_wanted_engine
from blackstart.process.procfs import cwd_of, pids
from blackstart.process.strays import Sought, find
from blackstart.record import Run

if TYPE_CHECKING:
    from collections.abc import Iterator

START_S = 90.0  # a pytest of its own, with its Postgres and a fleet, on a machine that runs others
NOTHING_LEFT_S = 2.0  # what is promised
CONTAINER_LEFT_S = 10.0  # what is promised of a container: its engine ends it
KEPT = {".json", ".jsonl", ".log"}
SPEC = """
import os, pathlib, pytest
from blackstart import eventually

@pytest.mark.cluster(frontends={frontends}, workers={workers})
@pytest.mark.parametrize("name", {names})
def test_holds(fleet, name):
    folder = pathlib.Path({folder!r})
    (folder / f"{{name}}.draft").write_text(f"{{fleet.run.dir}}\\n{{os.getpid()}}")
    (folder / f"{{name}}.draft").rename(folder / f"{{name}}.up")
    eventually((folder / f"{{name}}.go").exists, True, within={within})
"""


class Inner:
    """A pytest of its own over a spec that holds its fleet until it is let go."""

    def __init__(
        self,
        folder: Path,
        *names: str,
        frontends: int,
        workers: int,
        xdist: int = 0,
        postgres: str = "embedded",
    ) -> None:
        self.folder = folder
        spec = folder / "test_inner.py"
        spec.write_text(
            SPEC.format(
                frontends=frontends, workers=workers, names=list(names), folder=str(folder), within=START_S
            )
        )
        parallel = ["-n", str(xdist), "--dist", "load"] if xdist else []
        self.log = folder / "inner.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-m",
                        "pytest",
                        str(spec),
                        "-p",
                        "no:cacheprovider",
                        "--bs-run-dir",
                        str(folder / "logs"),
                    ),
                    *("--rootdir", str(folder), "-c", os.devnull, "--bs-postgres", postgres, *parallel),
                ],
                cwd=folder,
                env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def describe_death(self) -> str:
        """How it ended and what it said."""
        return f"the inner pytest ended with {self.process.poll()}\n{self.log.read_text(errors='replace')[-4000:]}"

    def up(self, name: str) -> tuple[Run, int]:
        """The run and the pid of the process that runs the spec of that name, once it holds its fleet."""
        told = self.folder / f"{name}.up"
        eventually(told.exists, True, within=START_S, watch=[self])
        run_dir, pid = told.read_text().split("\n")
        return Run.attach(Path(run_dir)), int(pid)

    def go(self, name: str) -> None:
        """Let the spec of that name end."""
        (self.folder / f"{name}.go").touch()


@contextlib.contextmanager
def _inner(
    folder: Path, *names: str, frontends: int, workers: int, xdist: int = 0, postgres: str = "embedded"
) -> Iterator[Inner]:
    inner = Inner(folder, *names, frontends=frontends, workers=workers, xdist=xdist, postgres=postgres)
    try:
        yield inner
    finally:
        if inner.alive:
            os.killpg(inner.process.pid, signal.SIGKILL)
        inner.process.wait()


def _in_folder(folder: str) -> list[int]:
    """Processes at work below a folder: Postgres's children keep no tag, but they keep this."""
    return [pid for pid in pids() if (cwd_of(pid) or "").startswith(folder)]


def test_a_killed_pytest_leaves_no_process_behind(tmp_path: Path) -> None:
    with _inner(tmp_path, "only", frontends=2, workers=2) as inner:
        run, _ = inner.up("only")
        scratch = str(run.facts()["scratch"])
        tagged, postgres = find(Sought(run=run.id)), _in_folder(scratch)
        # the control: the same look sees them while they run
        assert len(tagged) >= 6
        assert postgres
        inner.process.kill()
        inner.process.wait()
        eventually(
            lambda: [*(stat.pid for stat in find(Sought(run=run.id))), *_in_folder(scratch)],
            [],
            within=NOTHING_LEFT_S,
        )
        eventually(Path(scratch).exists, False, within=NOTHING_LEFT_S)


def test_a_killed_controller_of_parallel_workers_leaves_no_process_behind(tmp_path: Path) -> None:
    with _inner(tmp_path, "one", "two", frontends=1, workers=1, xdist=2) as inner:
        (run, one), (_, two) = inner.up("one"), inner.up("two")
        scratch = str(run.facts()["scratch"])
        # the control: the same looks see what both workers asked for, and the Postgres they share
        assert len(find(Sought(run=run.id, user=one))) >= 3
        assert len(find(Sought(run=run.id, user=two))) >= 3
        assert _in_folder(scratch)
        assert {one, two} <= set(pids())
        inner.process.kill()
        inner.process.wait()
        eventually(
            lambda: [*(stat.pid for stat in find(Sought(run=run.id))), *_in_folder(scratch)],
            [],
            within=NOTHING_LEFT_S,
        )


@pytest.mark.needs("container")
def test_a_killed_controller_leaves_no_container_behind(tmp_path: Path) -> None:
    with _inner(tmp_path, "one", "two", frontends=1, workers=1, xdist=2, postgres="container") as inner:
        run, _ = inner.up("one")
        engine = find_wanted_engine(remark=print)
        assert isinstance(engine, Engine), engine

        def containers() -> list[str]:
            found = engine.containers(label=f"{RUN_LABEL}={run.id}")
            return [name for container in found for name in container["Names"]]

        assert len(containers()) == 1, "the control: the engine lists it while it runs"
        assert len(find(Sought(run=run.id))) >= 3
        inner.process.kill()
        inner.process.wait()
        eventually(lambda: find(Sought(run=run.id)), [], within=NOTHING_LEFT_S)
        eventually(containers, [], within=CONTAINER_LEFT_S)


def test_a_killed_xdist_worker_takes_its_own_and_the_rest_of_the_run_finishes(tmp_path: Path) -> None:
    with _inner(tmp_path, "one", "two", frontends=1, workers=1, xdist=2) as inner:
        (run, victim), (_, other) = inner.up("one"), inner.up("two")
        assert victim != other
        assert len(find(Sought(run=run.id, user=victim))) >= 3
        theirs = {stat.pid for stat in find(Sought(run=run.id, user=other))}
        assert len(theirs) >= 3
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: find(Sought(run=run.id, user=victim)), [], within=NOTHING_LEFT_S)
        # the control: what the other one asked for runs on, and so does the Postgres they share
        assert {stat.pid for stat in find(Sought(run=run.id, user=other))} == theirs
        assert _in_folder(str(run.facts()["scratch"]))
        inner.go("two")
        eventually(lambda: inner.alive, False, within=START_S)
        said = inner.log.read_text(errors="replace")
        assert "1 failed, 1 passed" in said, said[-3000:]
        assert "crashed" in said
        eventually(lambda: find(Sought(run=run.id)), [], within=NOTHING_LEFT_S)


@contextlib.contextmanager
def _up(folder: Path, *size: str) -> Iterator[subprocess.Popen[bytes]]:
    """`blackstart up --json`, writing its runs into a folder."""
    command = [sys.executable, "-c", "import sys; from blackstart.cli import main; sys.exit(main())"]
    arguments = ["up", *size, "--json", "--run-dir", str(folder)]
    with subprocess.Popen(
        [*command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
    ) as up:
        try:
            yield up
        finally:
            if up.poll() is None:
                up.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_up_says_where_everything_is_and_told_to_end_ends_everything_with_0_and_kept_no_secret(
    tmp_path: Path, number: signal.Signals
) -> None:
    with _up(tmp_path) as up:
        assert up.stdout is not None
        told = json.loads(up.stdout.readline())
        run = Run.attach(tmp_path / "latest")
        assert (told["run"], told["run_dir"], told["socket"]) == (run.id, str(run.dir), None)
        _is_as_told(told)
        assert len(find(Sought(run=run.id))) >= 6  # the control for what follows
        up.send_signal(number)
        assert up.wait(START_S) == 0
    eventually(lambda: find(Sought(run=run.id)), [], within=NOTHING_LEFT_S)
    kept = "".join(path.read_text(errors="replace") for path in run.dir.rglob("*") if path.suffix in KEPT)
    assert run.id in kept  # the control: it is read
    for secret in (told["api_key"], told["admin_cookie"], told["postgres"]["url"]):
        assert secret not in kept, "a secret is in the run folder"


def _is_as_told(told: dict[str, Any]) -> None:
    """Each thing said is asked for itself: a name, an id, a URL, a pid or a key that is another's is of no use."""
    nodes = told["frontends"] + told["workers"]
    assert [node["name"] for node in nodes] == ["frontend-0", "frontend-1", "worker-0", "worker-1"]
    for node in nodes:
        of_process = Path(f"/proc/{node['pid']}/environ").read_bytes().split(b"\0")
        variable = "INSTANCE_ID" if node in told["frontends"] else "NODE_NAME"
        assert f"BLACKSTART_{variable}={node['name']}".encode() in of_process, "a pid is another's"
    urls = {node["id"]: node["url"] for node in told["frontends"]}
    ids = {node["name"]: node["id"] for node in told["workers"]}
    assert told["balancer"] not in urls.values(), "the balancer is a replica"
    session = {"Cookie": f"session={told['admin_cookie']}"}
    for url in (told["balancer"], *urls.values()):
        with client_of(url, within=START_S, headers=session) as admin:
            answer = admin.get("/api/instances")
            assert answer.status_code == 200, "the cookie opens nothing"
            assert {one["id"]: f"http://{one['address']}" for one in answer.json()} == urls
            assert {node["name"]: node["id"] for node in json_of(admin.get("/api/nodes"), 200)} == ids
    body = body_of("babbler-1", "say something", max_tokens=4)
    with client_of(told["balancer"], within=START_S) as anybody:
        assert anybody.get("/api/nodes").status_code == 401, "the control: the cookie is needed"
        assert anybody.post("/v1/chat/completions", json=body).status_code == 401, (
            "the control: so is the key"
        )
        bearer = {"Authorization": f"Bearer {told['api_key']}"}
        answer = anybody.post("/v1/chat/completions", json=body, headers=bearer)
        assert answer.status_code == 200, "the key opens nothing"
        assert answer.json()["choices"][0]["message"]["content"] != ""
        assert answer.headers.get("X-Blackstart-Node") == ids["worker-1"]
        assert answer.headers.get("X-Blackstart-Route") in {"local", "relayed"}
    with psycopg.connect(told["postgres"]["url"]) as database:
        rows = database.execute("SELECT name, id::text FROM nodes").fetchall()
    assert dict(rows) == ids, "another database"


def test_up_that_is_interrupted_before_it_is_ready_ends_everything_with_130(tmp_path: Path) -> None:
    with _up(tmp_path, "--frontends", "1", "--workers", "1") as up:
        eventually((tmp_path / "latest").exists, True, within=START_S)
        run = Run.attach(tmp_path / "latest")
        eventually(lambda: bool(find(Sought(run=run.id))), True, within=START_S)
        up.send_signal(signal.SIGINT)
        assert up.wait(START_S) == 130
        assert up.stdout is not None
        assert up.stdout.read() == b"", "it said it was ready"
    eventually(lambda: find(Sought(run=run.id)), [], within=NOTHING_LEFT_S)
