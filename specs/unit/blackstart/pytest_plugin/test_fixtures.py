"""What a spec asks for by name is there, and gone after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Inner = Callable[..., pytest.RunResult]


@pytest.mark.holds("B-199", "B-200")
def test_parallel_specs_share_one_server_have_databases_of_their_own_and_lose_them_whatever_happens(
    inner: Inner, pytester: pytest.Pytester
) -> None:
    source = """
import psycopg, pytest
NAMES = []
@pytest.mark.parametrize("number", range(4))
def test_has_its_own(infra, number):
    database = infra.database()
    with psycopg.connect(database.url) as connection:
        connection.execute("CREATE TABLE mine (number int)")
    with open(f"server-{infra.postgres.port}", "a") as file:
        file.write(database.name + "\\n")
    assert number != 3, "a failing spec loses its database too"
"""
    result = inner(source, "-n", "2")
    result.assert_outcomes(passed=3, failed=1)
    servers = list(pytester.path.glob("server-*"))
    assert len(servers) == 1, "one server a run, whoever asks first"
    names = servers[0].read_text().split()
    assert len(set(names)) == 4, "a database a spec"

    left = inner(
        source.replace("assert number != 3", "pass #")
        + """
def test_nothing_is_left(infra):
    with psycopg.connect(infra.postgres.url()) as connection:
        rows = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE 'blackstart%'").fetchall()
    assert rows == []
"""
    )
    left.assert_outcomes(passed=5)


CLUSTER = """
import os, sys
from blackstart.core.topology import ArgvService, Group, HttpReady, Topology

WEB = '''
import http.server, os, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"here"); self.wfile.flush()
        if self.path == "/die":
            os._exit(7)
    def log_message(self, *words): pass
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Page).serve_forever()
'''
PIDS = []

def web():
    service = ArgvService(name="web", argv=(sys.executable, "-c", WEB, "{port}"), ready=HttpReady(path="/"))
    return Topology(groups=(Group(service=service, count=2),))

def test_runs(cluster):
    webs = cluster(web())
    PIDS.extend(node.pid for node in webs.nodes)
    assert len(set(PIDS)) == 2 and all(os.path.exists(f"/proc/{pid}") for pid in PIDS)

def test_is_gone(journal):
    assert not any(os.path.exists(f"/proc/{pid}") for pid in PIDS)
"""


@pytest.mark.holds("B-177")
def test_a_cluster_is_started_for_a_spec_and_ended_with_it(inner: Inner, pytester: pytest.Pytester) -> None:
    result = inner(CLUSTER)
    left = [line.strip() for line in result.outlines if line.strip().startswith("processes: ")]
    assert left == [], "its processes outlive the spec"
    result.assert_outcomes(passed=2)
    [log] = (pytester.path / "logs" / "latest").glob("*test_runs*/web-0.1.log")
    assert "spec begins: test_inner.py::test_runs" in log.read_text()
    assert "spec ends: test_inner.py::test_runs: passed" in log.read_text()


def test_a_process_that_dies_unasked_fails_the_spec_it_died_in(inner: Inner) -> None:
    source = (
        CLUSTER
        + """
import urllib.request
from blackstart import eventually
def test_overlooks_a_death(cluster):
    webs = cluster(web())
    urllib.request.urlopen(f"http://{webs.nodes[0].place.address}/die").close()
    eventually(lambda: webs.nodes[0].alive, False, within=10)
"""
    )
    result = inner(source, "-k", "overlooks")
    assert result.parseoutcomes().get("failed") == 1, "an unasked death must fail the spec"
    result.stdout.fnmatch_lines(["*a process died unasked:*", "*web-0*7*"])
