"""A whole session from outside: the gate, the tally, and one run shared by parallel workers."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.waiting import eventually
from blackstart.process.strays import Sought, find
from blackstart.record import read_journal

if TYPE_CHECKING:
    from pathlib import Path

    from blackstart.core.journal import Event

Inner = Callable[..., pytest.RunResult]

SKIPPED = """
import pytest
@pytest.mark.holds("B-1")
@pytest.mark.skip(reason="not today")
def test_one(): pass
"""

PASSES = """
import pytest
@pytest.mark.holds("B-1")
def test_one(): pass
"""


def latest(pytester: pytest.Pytester) -> Path:
    return (pytester.path / "logs" / "latest").resolve()


def verdicts(run: Path, spec: str) -> list[str]:
    return [
        event.data["verdict"] for event in events(run, "verdict") if event.spec and event.spec.endswith(spec)
    ]


def events(run: Path, kind: str) -> list[Event]:
    return [event for event in read_journal(run) if event.kind == kind]


@pytest.mark.holds("B-205")
def test_a_run_where_everything_is_skipped_is_red_under_ci_and_green_without(inner: Inner) -> None:
    assert inner(SKIPPED).ret == 0
    gated = inner(SKIPPED, CI="1")
    assert gated.ret == 1, "an all-skipped run must be red under CI"
    gated.stdout.fnmatch_lines(["*CI is set and every one of the 1 specs was skipped*"])


@pytest.mark.holds("B-204")
def test_an_unparseable_switch_reads_as_on_and_an_off_word_as_off(inner: Inner) -> None:
    assert inner(SKIPPED, CI="flase").ret == 1, "an unparseable switch reads as on"
    assert inner(SKIPPED, CI="off").ret == 0


@pytest.mark.holds("B-205", "B-256")
def test_a_filter_that_hides_every_spec_is_red_under_ci(inner: Inner) -> None:
    gated = inner(PASSES, "-k", "nothing_like_it", CI="1")
    assert gated.ret == 1
    gated.stdout.fnmatch_lines(["*none of the 1 collected specs ran*"])


def test_somebody_elses_skipped_run_is_left_alone(inner: Inner, pytester: pytest.Pytester) -> None:
    result = inner(SKIPPED.replace('@pytest.mark.holds("B-1")', ""), CI="1")
    assert result.ret == 0
    assert not (pytester.path / "logs").exists()
    assert "= blackstart =" not in result.stdout.str()


@pytest.mark.holds("B-204")
def test_a_required_capability_that_is_missing_fails_its_spec_and_the_run(inner: Inner) -> None:
    source = """
import pytest
from blackstart.cluster import capabilities
capabilities._PROBES["go"] = lambda: "go is not on PATH"
@pytest.mark.needs("go")
def test_needs(): pass
def test_other(): pass
"""
    skipped = inner(source, "-rs")
    assert skipped.ret == 0
    skipped.stdout.fnmatch_lines(["*needs go: go is not on PATH*"])

    required = inner(source, BLACKSTART_REQUIRE="go")
    required.assert_outcomes(passed=1, errors=1)
    required.stdout.fnmatch_lines(["*BLACKSTART_REQUIRE names go, which is not here*"])

    unused = inner(source, "-k", "other", BLACKSTART_REQUIRE="go")
    assert unused.ret == 1, "the run is short of what it requires, whatever was selected"


PROBED = """
import pytest
from blackstart.cluster import capabilities
for name in capabilities._PROBES:
    capabilities._PROBES[name] = lambda name=name: f"{name} was tried"
capabilities._PROBES["go"] = lambda: None
@pytest.mark.needs("strace")
def test_needs(journal): pass
def test_other(journal): pass
"""


@pytest.mark.parametrize("parallel", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_a_run_says_its_versions_and_the_capabilities_that_were_asked_for(
    inner: Inner, pytester: pytest.Pytester, parallel: tuple[str, ...]
) -> None:
    inner(PROBED, *parallel)
    facts = json.loads((latest(pytester) / "run.json").read_text())
    assert set(facts["versions"]) == {"blackstart", "kernel", "pytest", "python"}, "a version is missing"
    assert facts["versions"]["blackstart"] == version("blackstart")
    told = facts["capabilities"]
    assert told.get("strace") == "strace was tried", f"what a spec asked for is missing: {told}"
    assert set(told) == {"browser", "faketime", "go", "openssl", "strace"}, (
        "what costs time is tried for its own sake"
    )
    assert parallel or (told["go"], told["browser"]) == ("here", "browser was tried")


def test_a_required_name_nobody_knows_is_bad_input(inner: Inner) -> None:
    result = inner(PASSES, BLACKSTART_REQUIRE="docker")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*blackstart: BLACKSTART_REQUIRE=docker: not a capability; try: *container*"]
    )


INVENTORY = """
B-1 = { title = "held" }
B-2 = { title = "nobody holds it" }
B-3 = { title = "comes later", later = "tunnel" }
"""


def with_inventory(pytester: pytest.Pytester, text: str) -> None:
    pytester.makefile(".toml", inventory=text)
    pytester.makeini("[pytest]\nblackstart_inventory = inventory.toml\ntestpaths = test_inner.py\n")


@pytest.mark.parametrize("parallel", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_hole_in_the_tally_fails_a_whole_run_and_no_selection(
    inner: Inner, pytester: pytest.Pytester, parallel: tuple[str, ...]
) -> None:
    with_inventory(pytester, INVENTORY)
    whole = inner(PASSES, *parallel)
    assert whole.ret == 1, "a hole in the tally must fail the run"
    whole.stdout.fnmatch_lines(["*1 held, 0 excused, 1 later (tunnel 1), 0 never, 1 holes*", "*HOLE B-2*"])

    selected = inner(PASSES, *parallel, "-k", "one")
    assert selected.ret == 0
    assert "HOLE" not in selected.stdout.str()


def test_a_whole_tally_is_printed_and_green(inner: Inner, pytester: pytest.Pytester) -> None:
    with_inventory(pytester, INVENTORY.replace('"nobody holds it"', '"not ours", never = "no reason to"'))
    whole = inner(PASSES)
    assert whole.ret == 0
    whole.stdout.fnmatch_lines(["*tally*1 held, 0 excused, 1 later (tunnel 1), 1 never, 0 holes*"])


def test_an_id_that_is_not_in_the_inventory_fails_a_whole_run(
    inner: Inner, pytester: pytest.Pytester
) -> None:
    with_inventory(pytester, 'B-7 = { title = "another", later = "tunnel" }')
    whole = inner(PASSES)
    assert whole.ret == 1
    whole.stdout.fnmatch_lines(["*UNKNOWN B-1: held by test_inner.py::test_one*"])


STORIES = """
import os, pytest
def test_passes(journal): pass
def test_fails(journal): assert 1 == 2, "the product did not"
@pytest.fixture
def broken():
    yield
    raise RuntimeError("the harness broke")
def test_fails_and_its_tear_down_too(journal, broken): assert 1 == 2, "the product did not"
def test_passes_and_its_tear_down_breaks(journal, broken): pass
"""


def test_a_broken_tear_down_never_replaces_the_products_verdict(
    inner: Inner, pytester: pytest.Pytester
) -> None:
    inner(STORIES)
    run = latest(pytester)
    assert verdicts(run, "::test_passes") == ["passed"]
    assert verdicts(run, "::test_fails") == ["failed"]
    assert verdicts(run, "::test_fails_and_its_tear_down_too") == ["failed", "harness-failure"]
    assert verdicts(run, "::test_passes_and_its_tear_down_breaks") == ["passed", "harness-failure"]
    assert json.loads((run / "run.json").read_text())["verdict"] == "failed"
    assert [event.data["verdict"] for event in events(run, "run-end")] == ["failed"]


STALLED = """
from blackstart.pytest_plugin.stash import STALL
def test_late(journal, request):
    request.node.stash[STALL].saw(60.0)
    assert 1 == 2
def test_in_time_all_the_same(journal, request):
    request.node.stash[STALL].saw(60.0)
"""


def test_a_failure_while_the_machine_stood_still_is_inconclusive_loud_and_not_green(
    inner: Inner, pytester: pytest.Pytester
) -> None:
    result = inner(STALLED)
    result.assert_outcomes(passed=1, failed=1)
    assert result.ret == 1, "what proves nothing is not green"
    run = latest(pytester)
    assert verdicts(run, "::test_late") == ["inconclusive"]
    assert verdicts(run, "::test_in_time_all_the_same") == ["passed"]
    assert json.loads((run / "run.json").read_text())["verdict"] == "inconclusive"
    told = [event for event in events(run, "mark") if "stood still" in event.data.get("text", "")]
    assert [event.data["phase"] for event in told] == ["call", "call"]
    result.stdout.fnmatch_lines(
        [
            "INCONCLUSIVE test_inner.py::test_late: the machine stood still for 59.9 s while it failed",
            "INCONCLUSIVE 1 of the failed specs prove nothing either way",
        ]
    )
    # the control: beside a failure the machine had no part in, the run has failed
    beside = inner(STALLED + "def test_fails(journal): assert 1 == 2")
    assert verdicts(latest(pytester), "::test_fails") == ["failed"]
    assert json.loads((latest(pytester) / "run.json").read_text())["verdict"] == "failed"
    beside.stdout.fnmatch_lines(["INCONCLUSIVE 1 of the failed specs prove nothing either way"])


def test_a_failure_prints_the_command_that_shows_it_again_with_its_seed(inner: Inner) -> None:
    result = inner(STORIES, "--bs-seed", "4711")
    result.stdout.fnmatch_lines(["*reproduce*pytest test_inner.py::test_fails --bs-seed 4711"])
    result.stdout.fnmatch_lines(["*settings*seed 4711, preset drill, time factor 1"])


PARALLEL = """
import os, pytest
@pytest.mark.parametrize("number", range(8))
def test_one(journal, number):
    journal.write("mark", text="here", pid=os.getpid(), run=str(journal.path.parent.parent))
"""


def test_parallel_workers_join_one_run_and_each_has_a_pen_of_its_own(
    inner: Inner, pytester: pytest.Pytester
) -> None:
    result = inner(PARALLEL, "-n", "2", "--dist", "load")
    result.assert_outcomes(passed=8)
    runs = [path for path in (pytester.path / "logs").iterdir() if not path.is_symlink()]
    assert len(runs) == 1, "parallel workers must share one run"
    marks = [event for event in events(runs[0], "mark") if event.data.get("text") == "here"]
    assert {event.data["run"] for event in marks} == {str(runs[0])}
    assert len(marks) == 8
    assert len({event.data["pid"] for event in marks}) == 2
    assert {"gw0", "gw1", "pytest"} <= {path.name.split(".")[0] for path in (runs[0] / "journal").iterdir()}


CRASH = """
import os, signal
def test_dies(journal): os.kill(os.getpid(), signal.SIGKILL)
def test_goes_on(journal): pass
def test_goes_on_too(journal): pass
"""


def test_the_journal_names_the_spec_a_dead_worker_had_open_and_the_rest_goes_on(
    inner: Inner, pytester: pytest.Pytester
) -> None:
    result = inner(CRASH, "-n", "2")
    result.assert_outcomes(passed=2, failed=1)
    run = latest(pytester)
    assert verdicts(run, "::test_dies") == ["harness-failure"]
    [told] = [event for event in events(run, "verdict") if event.data["verdict"] == "harness-failure"]
    assert told.data["phase"] == "crash"
    assert verdicts(run, "::test_goes_on") == ["passed"]


def test_the_seed_of_the_controller_is_the_seed_of_every_worker(
    inner: Inner, pytester: pytest.Pytester
) -> None:
    source = """
import pytest
@pytest.mark.parametrize("number", range(4))
def test_one(journal, request, number):
    journal.write("mark", text="seed", seed=request.config.getoption("bs_seed"))
"""
    inner(source, "-n", "2")
    run = latest(pytester)
    seeds = {event.data["seed"] for event in events(run, "mark") if event.data.get("text") == "seed"}
    assert seeds == {str(json.loads((run / "run.json").read_text())["seed"])}


def test_hypothesis_draws_from_the_seed_of_the_run_and_is_imported_only_by_who_uses_it(inner: Inner) -> None:
    source = """
import sys
from hypothesis import core, given, settings, strategies
DRAWN = []
@settings(database=None, max_examples=5)
@given(strategies.integers(0, 10**9))
def test_draws(number): DRAWN.append(number)
def test_tells(): print("DRAWN", core.global_force_seed, DRAWN)
"""
    told = [inner(source, "-s", "--bs-seed", seed).outlines for seed in ("7", "7", "8")]
    drawn = [[line.partition("DRAWN")[2] for line in lines if "DRAWN" in line] for lines in told]
    assert drawn[0] == drawn[1] != drawn[2]
    inner("import sys\ndef test_light(): assert 'hypothesis.core' not in sys.modules").assert_outcomes(
        passed=1
    )


@pytest.mark.holds("B-249")
def test_each_wait_is_journaled_with_its_spec_and_scaled_by_the_factor(
    inner: Inner, pytester: pytest.Pytester
) -> None:
    source = """
from blackstart import eventually
def test_waits(journal):
    eventually(lambda: 3, 3, within=2)
"""
    result = inner(source, "--bs-time-factor", "2.5")
    [wait] = events(latest(pytester), "wait")
    assert wait.spec == "test_inner.py::test_waits"
    assert (wait.data["declared_s"], wait.data["budget_s"], wait.data["looks"]) == (2, 5, 1)
    result.stdout.fnmatch_lines(["*budget*% of 5 s used by test_inner.py::test_waits*"])


def test_repeating_makes_each_repetition_a_test_of_its_own(inner: Inner) -> None:
    result = inner("def test_one(): pass\ndef test_two(): pass\n", "--bs-repeat", "3", "-v")
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["*test_one[[]1-of-3[]]*", "*test_two[[]3-of-3[]]*"])


def test_neither_the_plugin_nor_a_run_that_asked_for_no_postgres_loads_anything_heavy(inner: Inner) -> None:
    source = """
import atexit, sys
HEAVY = ("psycopg", "aiohttp", "docker", "testcontainers", "uvicorn", "starlette", "psutil", "httpx2", "blackstart.infra.infra")
def heavy(): return [name for name in HEAVY if name in sys.modules]
atexit.register(lambda: print("loaded by its end:", heavy()))
def test_light(journal):
    assert heavy() == []
"""
    result = inner(source, "-p", "no:schemathesis")
    result.assert_outcomes(passed=1)
    assert "loaded by its end: []" in result.outlines, result.outlines[-1]


def test_the_guardian_ends_what_a_killed_session_left(inner: Inner, pytester: pytest.Pytester) -> None:
    """The session kills itself with a child of its own running; nothing tagged with the run may outlive it."""
    source = """
import os, signal
from pathlib import Path
def test_dies(journal, request):
    from blackstart.pytest_plugin.host import host_of
    host = host_of(request.config)
    host.spawner.spawn(node="sleeper", argv=["sleep", "600"], log_dir=host.run.dir, spec="x")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    inner(source)
    run = latest(pytester)
    assert [event.node for event in events(run, "spawn")] == ["sleeper"]
    eventually(lambda: find(Sought(run=run.name)), [], within=5)


@pytest.mark.holds("B-202")
def test_what_a_spec_lacks_is_found_out_before_anything_is_started_for_it(
    inner: Inner, pytester: pytest.Pytester
) -> None:
    source = """
import pytest
from blackstart.cluster import capabilities
capabilities._PROBES["go"] = lambda: "go is not on PATH"
@pytest.fixture
def costly(infra): return infra.database()
@pytest.mark.needs("go")
def test_needs(costly): pass
"""
    result = inner(source)
    result.assert_outcomes(skipped=1)
    assert events(latest(pytester), "spawn") == [], "started for a spec that cannot run"
    result.stdout.fnmatch_lines(["*Postgres: embedded (never asked for)*"])
