"""A spec that leaves something behind fails itself, by name, and not the one after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Inner = Callable[..., pytest.RunResult]


SOON_TOLD = ("--bs-time-factor", "0.25")
"""What a guilty spec left is waited for, and in these it never goes."""


@pytest.mark.parametrize(
    ("leaking", "told"),
    [
        ("KEPT.append(open('/dev/zero'))", "descriptors: * -> /dev/zero"),
        ("import subprocess; KEPT.append(subprocess.Popen(['sleep', '60']))", "children: pid * (sleep 60)"),
        (
            "from blackstart.net import lease_ports; KEPT.append(lease_ports(2, run='x', purpose='spec'))",
            "port leases: 2 from * for spec",
        ),
    ],
    ids=["descriptor", "child", "port-lease"],
)
def test_what_a_spec_leaves_behind_fails_that_spec_by_name(inner: Inner, leaking: str, told: str) -> None:
    source = f"""
KEPT = []
def test_tidy(journal): pass
def test_guilty(journal): {leaking}
def test_next(journal): pass
"""
    result = inner(source, *SOON_TOLD)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        ["*ERROR at teardown of test_guilty*", "*::test_guilty left behind:", f"*{told}"]
    )


def test_a_tagged_process_is_found_wherever_it_has_gone(inner: Inner) -> None:
    """Its parent is not this process, and it has a session of its own."""
    source = """
from blackstart.pytest_plugin.host import host_of
def test_guilty(journal, request):
    host = host_of(request.config)
    gone = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(60)"
    import sys
    handle = host.spawner.spawn(node="x", argv=[sys.executable, "-c", gone], log_dir=host.run.dir, spec="x")
    handle.wait(within=10)
    handle.close() if hasattr(handle, "close") else None
"""
    result = inner(source, *SOON_TOLD)
    result.stdout.fnmatch_lines(["*::test_guilty left behind:", "*processes: pid * (*time.sleep(60)*"])


def test_a_fixture_of_a_wider_scope_may_keep_what_it_opened(inner: Inner) -> None:
    source = """
import pytest
@pytest.fixture(scope="module")
def opened():
    with open("/dev/zero") as file:
        yield file
def test_first(opened): pass
def test_second(opened): assert not opened.closed
"""
    inner(source).assert_outcomes(passed=2)


def test_a_lease_the_run_took_meanwhile_is_told_from_the_specs_own_by_its_port(inner: Inner) -> None:
    source = """
import pytest
from blackstart.net import lease_ports
KEPT = []
@pytest.fixture(scope="module")
def shared():
    with lease_ports(1, run="x", purpose="shared") as lease:
        yield lease
def test_tidy(journal, request):
    with lease_ports(1, run="x", purpose="own"):
        request.getfixturevalue("shared")
def test_guilty(journal, shared): KEPT.append(lease_ports(1, run="x", purpose="left"))
def test_next(journal, shared): pass
"""
    result = inner(source, *SOON_TOLD)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*::test_guilty left behind:", "*port leases: 1 from * for left"])


def test_what_is_just_ending_is_given_its_time(inner: Inner) -> None:
    source = """
import threading
def test_one():
    file = open("/dev/zero")
    threading.Timer(0.2, file.close).start()
"""
    inner(source).assert_outcomes(passed=1)


def test_a_sentinel_of_your_own_is_asked_too(inner: Inner) -> None:
    source = """
from blackstart.pytest_plugin import add_sentinel
THERE = {}
add_sentinel("toys", lambda: THERE)
def test_guilty(): THERE["ball"] = "a red ball"
"""
    result = inner(source, *SOON_TOLD)
    result.stdout.fnmatch_lines(["*::test_guilty left behind:", "*toys: a red ball"])


def test_a_database_nobody_dropped_is_found_on_the_server_itself(inner: Inner) -> None:
    source = """
import os, psycopg
from blackstart.infra.names import database_name
from blackstart.pytest_plugin.host import host_of
def test_tidy(infra): infra.database()
def test_guilty(infra, request):
    name = database_name(host_of(request.config).run.id, 99, owner=os.getpid())
    with psycopg.connect(infra.postgres.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
"""
    result = inner(source, *SOON_TOLD)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*::test_guilty left behind:", "*databases: blackstart_*_99"])


def test_a_container_that_is_still_there_is_found_on_the_engine(inner: Inner) -> None:
    """The engine is a double: that a real one lists its containers by label is held beside the provider."""
    source = """
import pytest
from blackstart.cluster import capabilities
from blackstart.pytest_plugin import spec_infra as looking
from blackstart.pytest_plugin.host import host_of
capabilities._PROBES["container"] = lambda: None
THERE = []
class Engine:
    def containers(self, *, label):
        assert label.startswith("org.blackstart.run=2")
        return [{"Names": [name]} for name in THERE]
looking.find_engine = Engine
@pytest.mark.needs("container")
def test_tidy(journal): pass
@pytest.mark.needs("container")
def test_meets_the_runs_server(journal, request):
    "It was started by another process of the run, which this one cannot know."
    THERE.append(f"/blackstart-{host_of(request.config).run.id}-postgres")
@pytest.mark.needs("container")
def test_guilty(journal): THERE.append("/blackstart-x-postgres")
"""
    result = inner(source, *SOON_TOLD)
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(["*::test_guilty left behind:", "*containers: blackstart-x-postgres"])


def test_a_container_that_a_spec_removed_is_gone_from_the_engine_and_one_it_did_not_is_told(
    inner: Inner,
) -> None:
    """The engine is a double that keeps count; the client that asks it, the look and the label are the real ones."""
    source = r"""
import http.server, json, threading
import pytest
from blackstart.cluster import capabilities
from blackstart.infra.engine import RUN_LABEL, Engine, engine_address
from blackstart.pytest_plugin.host import host_of
capabilities._PROBES["container"] = lambda: None
THERE = {}
class Api(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body):
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def do_GET(self):
        anyones = "run%3D" not in self.path
        listed = [{"Names": ["/" + name]} for name, run in THERE.items() if anyones or run in self.path]
        self.answer(200, {"Version": "1"} if self.path == "/version" else listed)
    def do_DELETE(self):
        name = self.path.partition("?")[0].rpartition("/")[2]
        self.answer(204 if THERE.pop(name, None) else 404, {"message": "gone"})
    def log_message(self, *words): pass
@pytest.fixture(scope="module", autouse=True)
def engine():
    with http.server.HTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_port}")
            yield Engine(engine_address(), "1")
        server.shutdown()
        thread.join()
@pytest.mark.needs("container")
def test_of_another_run(journal): THERE["other"] = "of-another-run"
@pytest.mark.needs("container")
def test_tidy(journal, request, engine):
    run = host_of(request.config).run.id
    THERE["tidy"] = run
    assert [each["Names"] for each in engine.containers(label=f"{RUN_LABEL}={run}")] == [["/tidy"]]
    engine.remove("tidy")
@pytest.mark.needs("container")
def test_guilty(journal, request): THERE["guilty"] = host_of(request.config).run.id
@pytest.mark.needs("container")
def test_next(journal): pass
"""
    result = inner(source, *SOON_TOLD)
    told = [line.strip() for line in result.outlines if "containers:" in line]
    assert told == ["containers: guilty"]
    result.assert_outcomes(passed=4, errors=1)
