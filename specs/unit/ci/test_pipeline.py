"""The choices of the pipeline that somebody would undo in good faith, read from the files that make them."""

from __future__ import annotations

import os
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORKFLOW = ROOT / ".github" / "workflows" / "e2e.yml"
READ = {".py", ".md", ".toml", ".yml"}  # every file of these kinds is read by a spec at the end of this file
WHOLE_RUN_S = 60 * 60 - 120  # what a run may take, less the grace of the one part that reached its limit
SCRIPTS = ("attack", "drill", "fuzz", "interop", "lint", "production", "soak", "test", "versions")


def text(name: str | Path) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def without_comments(source: str) -> str:
    return "\n".join(line.split(" #")[0] for line in source.splitlines() if not line.lstrip().startswith("#"))


def jobs() -> dict[str, str]:
    """The workflow's jobs by name, each as its own text."""
    body = without_comments(text(WORKFLOW)).partition("\njobs:\n")[2]
    parts = re.split(r"^  (\w+):\n", body, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def minutes(source: str, pattern: str) -> list[int]:
    return [int(number) for number in re.findall(pattern, source, re.MULTILINE)]


@pytest.mark.holds("B-203")
def test_fast_specs_and_clusters_of_real_processes_are_jobs_of_their_own() -> None:
    assert "ci/test specs/unit" in jobs()["unit"], "a lint error waits for clusters of processes"
    assert "ci/system" not in jobs()["unit"]
    assert "ci/system" in jobs()["cluster"]
    assert re.search(r"ci/test$", jobs()["cluster"], re.MULTILINE)
    assert "ci/production" in jobs()["production"], "no job runs production timings"


@pytest.mark.holds("B-204")
def test_the_pipeline_requires_by_name_whatever_it_brings() -> None:
    brought = re.search(r"system: brings ([\w,]+)", text("ci/system"))
    assert brought
    wanted = set(brought[1].split(","))
    assert f"BLACKSTART_REQUIRE: {brought[1]}" in jobs()["cluster"]
    required = re.search(r"^export BLACKSTART_REQUIRE=([\w,]+)", text(".ci/run"), re.MULTILINE)
    assert required
    assert set(required[1].split(",")) == wanted


@pytest.mark.holds("B-206")
def test_every_job_keeps_the_logs_of_a_red_run_which_lie_in_the_workspace() -> None:
    for job in jobs().values():
        when, _, kept = job.partition("uses: actions/upload-artifact@")
        assert "path: logs/" in kept, "the logs are somewhere else"
        assert when.endswith("if: failure() || cancelled()\n        "), "a red run keeps no logs"
    assert (ROOT / "logs" / "README.md").is_file()


@pytest.mark.holds("B-207")
def test_a_suites_own_limit_comes_before_its_steps_and_all_steps_before_the_jobs() -> None:
    for job in jobs().values():
        whole = minutes(job, r"^    timeout-minutes: (\d+)")
        steps = minutes(job, r"^        timeout-minutes: (\d+)")
        assert len(whole) == 1
        assert sum(steps) <= whole[0], "a job that is killed first leaves no evidence"
        limited = re.findall(
            r"timeout --signal=INT --kill-after=(\d+) (\d+) .*\n        timeout-minutes: (\d+)", job
        )
        assert limited
        for grace, seconds, step in limited:
            assert int(seconds) + int(grace) < int(step) * 60


@pytest.mark.holds("B-207")
def test_a_part_has_the_same_limit_in_the_workflow_as_in_the_pipeline() -> None:
    limits = {
        name: int(number) * 60
        for name, number in re.findall(r"^run (\w+) (\d+) ci/\w+$", text(".ci/run"), re.MULTILINE)
    }
    source = without_comments(text(WORKFLOW))
    found = re.findall(r" (\d+) ci/(\w+)$", source, re.MULTILINE)
    assert {name for _, name in found} == set(limits) - {"system"}, "a part is missing, or has no limit"
    assert {name: int(seconds) for seconds, name in found} == {
        name: seconds for name, seconds in limits.items() if name != "system"
    }, "two limits for one part"


@pytest.mark.holds("B-208", "B-209")
def test_paths_are_filtered_by_a_deny_list_on_requests_and_not_at_all_on_pushes() -> None:
    source = without_comments(text(WORKFLOW))
    triggers = source.partition("\non:\n")[2].partition("\npermissions:")[0]
    push, request = triggers.split("  pull_request:")
    assert "branches: [main]" in push
    assert "paths" not in push
    assert "paths-ignore:" in request
    assert "paths:" not in source.replace("paths-ignore:", "")
    assert "continue-on-error" not in source, "a red job would show green"


@pytest.mark.holds("B-208")
def test_no_file_that_a_spec_reads_is_left_out_of_a_request() -> None:
    """Pages are input: a change of one can be red, so it has to run the specs."""
    source = without_comments(text(WORKFLOW))
    listed = source.partition("    paths-ignore:\n")[2].partition("\npermissions:")[0]
    patterns = [line.strip().removeprefix("- ").strip('"') for line in listed.splitlines() if line.strip()]
    assert patterns, "the control: there is a list"
    specs = "\n".join(text(path) for path in (ROOT / "specs").rglob("*.py"))
    files = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in ("docs", "specs", "examples", "harness", "services", "bench", "ci", ".github"):
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    ignored = [
        name
        for name in (path.relative_to(ROOT).as_posix() for path in files)
        if any(fnmatch(name, pattern) or fnmatch(f"/{name}", pattern) for pattern in patterns)
    ]
    assert "LICENSE" in ignored, "the control: a pattern is understood"
    read = [name for name in ignored if Path(name).suffix in READ or f'("{name}")' in specs]
    assert read == [], "a change of what specs read would merge without them"


@pytest.mark.holds("B-210")
def test_no_reaper_is_pulled_and_the_tool_chain_is_pinned() -> None:
    source = without_comments(text(WORKFLOW))
    assert 'TESTCONTAINERS_RYUK_DISABLED: "true"' in source, "a reaper is pulled in the middle of a run"
    pinned = re.findall(r'python-version: (?:"([\d.]+)"|\|\n((?: +[\d.]+\n)+))', source)
    versions = [(one or several).split() for one, several in pinned]
    assert len(versions) == source.count("actions/setup-python@") == len(jobs())
    assert {of_job[-1] for of_job in versions} == {"3.11.11"}, "the last one is the default"
    assert all(re.fullmatch(r"3\.\d+\.\d+", one) for of_job in versions for one in of_job)
    assert "latest" not in source
    lock = text("requirements.lock")
    assert len(re.findall(r"^[\w.-]+(?:\[[\w,]+\])?==", lock, re.MULTILINE)) <= lock.count("--hash=sha256:")


@pytest.mark.holds("B-210")
def test_a_debug_shell_is_asked_for_by_hand_and_opens_after_the_logs_are_kept() -> None:
    source = without_comments(text(WORKFLOW))
    asked = source.partition("      debug_shell:\n")[2].partition("\n  push:")[0]
    assert "default: false" in asked
    shells = [job for job in jobs().values() if "tmate" in job]
    assert {job for name, job in jobs().items() if name in {"cluster", "production"}} == set(shells)
    for job in shells:
        before, _, shell = job.partition("actions/upload-artifact@")[2].partition(
            "uses: mxschmitt/action-tmate@"
        )
        assert before.endswith("if: failure() && inputs.debug_shell\n        "), "a shell nobody asked for"
        assert re.match(r"[0-9a-f]{40}\n", shell), "what lets somebody in is not pinned"
        assert "limit-access-to-actor: true" in shell, "a shell for everybody"


@pytest.mark.holds("B-211")
def test_there_is_one_attempt() -> None:
    lock = text("requirements.lock").lower()
    for plugin in ("pytest-rerunfailures", "pytest-retry", "flaky"):
        assert f"{plugin}==" not in lock
    for script in SCRIPTS:
        assert "--reruns" not in text(f"ci/{script}"), "a flake gets a second attempt"
        assert "--lf" not in text(f"ci/{script}")
    assert "retry" not in without_comments(text(WORKFLOW))


@pytest.mark.parametrize("script", [*(f"ci/{name}" for name in SCRIPTS), "ci/setup", ".ci/run"])
def test_a_script_is_strict_and_works_from_any_folder(script: str) -> None:
    source = text(script)
    assert source.startswith("#!/usr/bin/env bash\n")
    assert "set -euo pipefail" in source
    assert re.search(r'cd "(\$here|\$\(dirname)', source)
    assert os.access(ROOT / script, os.X_OK)
    if script.startswith("ci/") and script != "ci/setup":
        assert '"$here/ci/setup"' in source


def test_the_pipeline_runs_its_parts_in_order_and_stops_at_the_first_failure(tmp_path: Path) -> None:
    """The real `.ci/run`, over parts that only say their names."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / "ci").mkdir()
    runner = tmp_path / ".ci" / "run"
    runner.write_text(text(".ci/run"))
    runner.chmod(0o755)
    for name in ("system", "lint", "test", "drill", "attack"):
        part = tmp_path / "ci" / name
        part.write_text(f"#!/bin/sh\necho {name} $CI $BLACKSTART_REQUIRE\n[ {name} != attack ] || exit 3\n")
        part.chmod(0o755)
    environ = {"PATH": os.environ["PATH"]}
    done = subprocess.run([runner], cwd="/", env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    required = "container,strace,faketime,netns,go,openssl"
    assert done.stdout.splitlines() == [
        "system true",
        *(f"{name} true {required}" for name in ("lint", "test", "drill", "attack")),
    ]
    assert "ci: attack FAILED with 3" in done.stderr

    (tmp_path / "ci" / "attack").write_text("#!/bin/sh\necho attack\n")
    whole = subprocess.run([runner], cwd="/", env=environ, capture_output=True, text=True, check=False)
    assert whole.returncode == 0
    assert "ci: production is not here yet" in whole.stderr
    assert re.search(r"ci: attack \d+ s", whole.stderr)


@pytest.mark.holds("B-207")
def test_every_part_of_the_pipeline_has_a_limit_at_which_it_may_still_tell(tmp_path: Path) -> None:
    """The real `.ci/run`, over a `timeout` that tells how it was called and parts that do nothing."""
    parts = re.findall(r"^run (\w+)", text(".ci/run"), re.MULTILINE)
    for folder in (".ci", "ci", "bin"):
        (tmp_path / folder).mkdir()
    files = {".ci/run": text(".ci/run"), "bin/timeout": '#!/bin/sh\necho "$@"\n'}
    for name, source in (files | {f"ci/{part}": "#!/bin/sh\necho unlimited\n" for part in parts}).items():
        (tmp_path / name).write_text(source)
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    whole = subprocess.run(
        [tmp_path / ".ci" / "run"],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    told = [
        re.fullmatch(r"--signal=INT --kill-after=\d+ (\d+) ci/(\w+)", line)
        for line in whole.stdout.splitlines()
    ]
    assert None not in told, f"a part runs without a limit: {whole.stdout}"
    limits = {found[2]: int(found[1]) for found in told if found}
    assert list(limits) == parts
    assert min(limits.values()) >= 180, "a slow machine is no hang"
    assert sum(limits.values()) <= WHOLE_RUN_S, "the whole run is killed before its last part's limit comes"


@pytest.mark.holds("B-214")
def test_the_choices_that_are_easy_to_undo_are_written_down_where_they_are_made() -> None:
    page = text("docs/ci.md")
    rows = [line for line in page.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) >= 12
    for word in (
        "deny-list",
        "retries",
        "reaper",
        "continue-on-error",
        "all-skipped",
        "database a spec",
        "limit",
        "window",
    ):
        assert word in page
    for row in rows:
        for named in re.findall(r"`([\w./-]+)`", row.rsplit("|", 2)[1]):
            assert (ROOT / named).exists(), f"{named} makes no such choice: it is not there"


@pytest.mark.holds("B-258")
def test_no_page_and_no_comment_names_a_file_that_is_not_there() -> None:
    """A pointer to a moved file is the first promise a text breaks."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        check=False,
    ).stdout.split(b"\0")
    named = re.compile(
        r"`((?:harness|services|specs|ci|docs|bench|examples)/[\w./-]+\.(?:py|md|toml|sql|yml))`"
    )
    missing = []
    for raw in listed:
        path = ROOT / os.fsdecode(raw)
        if raw and path.suffix in READ and path.is_file():
            source = path.read_text(encoding="utf-8", errors="replace")
            missing += [
                f"{os.fsdecode(raw)}: {one}" for one in named.findall(source) if not (ROOT / one).exists()
            ]
    assert missing == [], "a text points at a file that is not there"
