"""Small real services for the specs of nodes and clusters: a web server of a few lines, and what it takes to run it."""

from __future__ import annotations

import contextlib
import http.client
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.cluster import Cluster
from blackstart.core.topology import ArgvService, Group, HttpReady, Topology
from blackstart.process import Guardian, Spawner
from blackstart.record import Journal, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from blackstart.cluster.node import Node

SOON = 10.0
WEB = """
import http.server, os, pathlib, signal, sys, time
port, data = int(sys.argv[1]), pathlib.Path(sys.argv[2])
how = dict(word.split("=") for word in sys.argv[3:])
with (data / "starts").open("a") as file:
    file.write(f"{os.getpid()}\\n")
if "crash" in how:
    print("cannot find its feet", flush=True)
    sys.exit(int(how["crash"]))
if "after" in how:
    while not (data.parent / f"{how['after']}.data" / "starts").exists():
        sys.exit(9)
if "child" in how:
    import subprocess
    subprocess.Popen(["sleep", "600"])
def ended(number, frame):
    print("asked to end", flush=True)
    if "deaf" in how:
        return
    time.sleep(float(how.get("slow", 0)))
    os._exit(int(how.get("code", 0)))
signal.signal(signal.SIGTERM, ended)
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        unready = "never" in how
        self.send_response(503 if unready else 200)
        self.end_headers()
        self.wfile.write(str(os.getpid()).encode())
        if self.path == "/die":
            self.wfile.flush()
            os._exit(7)
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Page)
print(f"listening on {port}", flush=True)
server.serve_forever()
"""


def web(
    name: str = "web", *words: str, after: tuple[str, ...] = (), exit_codes: frozenset[int] = frozenset({0})
) -> ArgvService:
    """The web server as a service; `words` change its manners: `crash=3`, `never=1`, `deaf=1`, `slow=0.5`, `code=4`, `child=1`."""
    return ArgvService(
        name=name,
        argv=(
            sys.executable,
            "-S",
            "-c",
            WEB.replace("{", "{{").replace("}", "}}"),
            "{port}",
            "{data}",
            *words,
        ),
        ready=HttpReady(path="/"),
        after=after,
        exit_codes=exit_codes,
    )


@dataclass
class World:
    """One run, its pens, and clusters made in it."""

    run: Run
    journal: Journal
    spawner: Spawner
    made: int = 0

    def cluster(self, *groups: Group, **budgets: float) -> Cluster:
        """A cluster that is not started; budgets are short, since everything here is small."""
        self.made += 1
        topology = Topology(groups=groups, budgets={"ready": 20.0, "stop": 10.0, "death": 10.0, **budgets})
        return Cluster(
            topology, run=self.run, spawner=self.spawner, journal=self.journal, spec=f"spec-{self.made}"
        )


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    run = Run.create(tmp_path_factory.mktemp("runs"), argv=["specs"])
    Guardian.start(run)
    with (
        Journal(run, writer="spec") as journal,
        Guardian.connect(run) as lease,
        Spawner(run, journal, lease) as spawner,
    ):
        yield World(run, journal, spawner)


@pytest.fixture
def one(world: World) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters of one web service and ends them with the spec."""
    made: list[Cluster] = []

    def make(*words: str, count: int = 1, **budgets: float) -> Cluster:
        cluster = world.cluster(Group(service=web("web", *words), count=count), **budgets)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        cluster.end()


def get(node: Node, path: str = "/", *, within: float = SOON) -> bytes:
    """What the node's web server answers."""
    connection = http.client.HTTPConnection(node.place.host, node.port, timeout=within)
    with contextlib.closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read()


def die(node: Node) -> None:
    """Have the process end by itself, unasked, with exit status 7."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        get(node, "/die")
    node.handle.wait(within=SOON)
