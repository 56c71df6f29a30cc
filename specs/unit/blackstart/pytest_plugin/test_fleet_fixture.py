"""What the fixtures make of a system's front: whose sentinels are asked when, what it is told, what is kept of it.

The front is played, a page of metrics of one process; the sentinel it gives is the embedded fleet's own.
"""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

Inner = Callable[..., pytest.RunResult]

HUNG_S = 120.0
SOON_S = 30.0  # a pytest of its own, on a machine that runs others

PLAYED = r"""
import http.server, threading
from contextlib import contextmanager
from types import SimpleNamespace
import pytest
from blackstart.cluster import fronts
from blackstart.cluster.lifecycle import State
from blackstart.fleet.front import Front

ASKED = []

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        names = {"blackstart_tasks": self.server.tasks, "blackstart_tunnels": 0, "blackstart_peer_links": 0}
        body = "".join(f"{name} {value}\n" for name, value in names.items()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *words): pass

class Played(Front):
    @contextmanager
    def fleet(self, request):
        ASKED.append(request)
        with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
            server.tasks = 9
            thread = threading.Thread(target=server.serve_forever, args=[0.01])
            thread.start()
            url = f"http://127.0.0.1:{server.server_port}"
            node = SimpleNamespace(name="frontend-0", url=url, incarnation=1, alive=True, state=State.READY)
            timings = SimpleNamespace(keepalive_timeout_s=0.1, drain_wait_s=0.1, handshake_s=5.0)
            yield SimpleNamespace(
                frontends=(node,), workers=(), timings=timings, page=server, dead=[], notes=(notes := []),
                note=notes.append,
            )
            server.shutdown()
            thread.join()

fronts.find_front = Played
"""


def told_of(result: pytest.RunResult, word: str) -> list[str]:
    return [line.strip() for line in result.outlines if word in line]


def test_the_tasks_a_fleet_is_left_with_fail_the_spec_that_left_them_by_name(inner: Inner) -> None:
    source = """
def test_tidy(fleet):
    fleet.page.tasks += 1
    fleet.page.tasks -= 1
def test_guilty(fleet): fleet.page.tasks += 1
def test_next(fleet): pass
"""
    result = inner(PLAYED + source)
    told = told_of(result, "blackstart_tasks:")
    assert told == ["blackstart_tasks: frontend-0.1: 10 tasks, 9 when idle, 9 with its tunnels and links"]
    assert told_of(result, "left behind:") == ["test_inner.py::test_guilty left behind:"]
    result.assert_outcomes(passed=3, errors=1)


def test_a_spec_that_failed_has_its_own_error_to_tell_and_no_leak_beside_it(inner: Inner) -> None:
    source = """
def test_fails_and_leaks(fleet):
    fleet.page.tasks += 1
    assert not "its own error"
"""
    result = inner(PLAYED + source)
    assert told_of(result, "left behind:") == [], "a leak hides the error it came of"
    result.assert_outcomes(failed=1)


def test_a_front_is_told_what_the_spec_and_the_run_asked_for(inner: Inner) -> None:
    source = """
@pytest.mark.cluster(frontends=3, workers=1)
def test_asks(fleet, infra, journal):
    [asked] = ASKED
    print("told", asked.arguments, asked.preset, asked.spec)
    assert asked.infra is infra and asked.journal is journal
    assert fleet.notes == ["spec begins: test_inner.py::test_asks"]
"""
    result = inner(PLAYED + source, "--bs-preset", "production", "-rP")
    told = told_of(result, "told {")
    assert told == ["told {'frontends': 3, 'workers': 1} production test_inner.py::test_asks"]
    result.assert_outcomes(passed=1)


def test_a_node_of_a_fleet_that_dies_unasked_fails_the_spec(inner: Inner) -> None:
    source = """
def test_overlooks_a_death(fleet):
    fleet.dead.append(SimpleNamespace(describe_death=lambda: "frontend-0 ended"))
"""
    result = inner(PLAYED + source)
    assert result.parseoutcomes().get("failed") == 1, "an unasked death must fail the spec"
    result.stdout.fnmatch_lines(["*a process died unasked:*", "*frontend-0 ended*"])


def test_where_a_fleet_had_its_database_is_known_of_each_that_asked_for_the_runs(inner: Inner) -> None:
    source = """
from blackstart.pytest_plugin.stash import POSTGRES
@pytest.fixture
def infra(request):
    return SimpleNamespace(started=request.param, postgres=SimpleNamespace(provider="played"))
@pytest.mark.parametrize("infra", [True, False], indirect=True)
def test_had(fleet, infra, request):
    print("known", infra.started, request.node.stash.get(POSTGRES, None))
"""
    result = inner(PLAYED + source, "-rP")
    assert told_of(result, "known ") == ["known True played", "known False None"]
    result.assert_outcomes(passed=2)


def test_a_fleet_where_no_system_is_embedded_is_an_error_with_the_remedy(inner: Inner) -> None:
    source = """
from blackstart.cluster import fronts
fronts.find_front = lambda: None
def test_asks(fleet): pass
"""
    result = inner(source)
    told = told_of(
        result, "UsageError: blackstart: fixture=fleet: no system is embedded; try: an entry point"
    )
    assert len(told) >= 1, "who is to be embedded is not said"
    result.assert_outcomes(errors=1)


KEPT = {
    "fleet": """
def test_fails(fleet):
    with open("url", "w") as file: file.write(fleet.frontends[0].url)
    assert not "its own error"
""",
    "cluster": """
import sys
from blackstart.core.topology import ArgvService, Group, HttpReady, Topology
def test_fails(cluster):
    argv = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "{port}")
    service = ArgvService(name="web", argv=argv, ready=HttpReady(path="/"))
    webs = cluster(Topology(groups=(Group(service=service, count=1),)))
    with open("url", "w") as file: file.write(f"http://{webs.nodes[0].place.address}")
    assert not "its own error"
""",
}


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("fixture", KEPT)
@pytest.mark.parametrize("options", [["--bs-keep"], []], ids=["kept", "not-asked-for"])
def test_what_a_failed_spec_ran_on_answers_until_somebody_ends_it_where_that_was_asked_for(
    pytester: pytest.Pytester, fixture: str, options: list[str]
) -> None:
    pytester.makepyfile(test_inner=PLAYED + KEPT[fixture])
    words = [sys.executable, "-m", "pytest", "-pno:cacheprovider", *options]
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as inner:
        # neither a line that never comes nor an error here may leave what is kept, and its reader, for good
        late = threading.Timer(HUNG_S, inner.kill)
        late.start()
        try:
            assert inner.stderr is not None
            kept = any(line.startswith("Ctrl-C ends them") for line in iter(inner.stderr.readline, ""))
            if kept:
                answered = _answers(pytester.path / "url")
                inner.send_signal(signal.SIGINT)
            told, _ = inner.communicate(timeout=SOON_S)
        finally:
            late.cancel()
            inner.kill()
    assert kept == bool(options), told
    assert not kept or answered, "what it ran on is gone"
    assert "1 failed" in told
    assert not _answers(pytester.path / "url"), "it outlived its end"


def _answers(url: Path) -> bool:
    # no client that loads a part of itself late: pytester takes away what was imported during a spec
    connection = http.client.HTTPConnection(url.read_text().removeprefix("http://"), timeout=SOON_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except ConnectionError:
        return False
    finally:
        connection.close()
