"""A capability is what was tried, not what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from blackstart.cluster import capabilities
from blackstart.infra import engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAY_ATTACH = """#!/bin/sh
for last; do :; done
kill -0 "$last" || { echo "strace: nobody is there to attach to" >&2; exit 1; }
[ "$6" = -p ] && echo "strace: Process $last attached" >&2
exec cat /dev/zero >/dev/null
"""
MAY_ONLY_START = """#!/bin/sh
for last; do :; done
[ "$6" = -p ] || exec "$last"
echo "strace: attach: ptrace(PTRACE_SEIZE, $last): Operation not permitted" >&2
exit 1
"""


@pytest.fixture
def strace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a strace of a few lines before the machine's own."""

    def put(script: str) -> None:
        (tmp_path / "strace").write_text(script)
        (tmp_path / "strace").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return put


def test_a_strace_that_may_only_trace_what_it_starts_is_not_here(strace: Callable[[str], None]) -> None:
    strace(MAY_ONLY_START)
    reason = capabilities._PROBES["strace"]()
    assert reason is not None, "it may not attach, which is what specs do with it"
    assert reason.endswith("Operation not permitted")


def test_a_strace_that_attaches_to_a_running_process_is_here_and_nothing_is_left_running(
    strace: Callable[[str], None],
) -> None:
    strace(MAY_ATTACH)
    assert capabilities._PROBES["strace"]() is None


def test_a_strace_that_says_nothing_is_given_up(
    strace: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capabilities, "_TRY_S", 0.05)
    strace("#!/bin/sh\nexec cat /dev/zero >/dev/null\n")
    reason = capabilities._PROBES["strace"]()
    assert reason is not None
    assert reason.endswith("no word within 0.05 s")


def test_what_is_not_on_the_path_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("strace", "netns", "go", "openssl", "browser"):
        assert "on PATH" in (capabilities._PROBES[name]() or ""), name


def test_a_tool_chain_without_the_yamux_it_is_for_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "go").touch(mode=0o755)
    monkeypatch.setattr(capabilities, "_GO_YAMUX", tmp_path / "yamux")
    assert capabilities._PROBES["go"]() == f"{tmp_path / 'yamux'} is not installed"
    (tmp_path / "yamux").mkdir()
    assert capabilities._PROBES["go"]() is None


@pytest.mark.needs("strace")
def test_the_machines_own_strace_is_asked_in_the_same_words() -> None:
    assert capabilities._PROBES["strace"]() is None


@pytest.mark.parametrize("required", [True, False])
def test_a_required_engine_is_given_longer_than_one_that_is_only_wished_for(
    monkeypatch: pytest.MonkeyPatch, *, required: bool
) -> None:
    def wanted(*, remark: Callable[[str], object]) -> str:
        remark("silent at first")
        return "none after a long while"

    monkeypatch.setenv("BLACKSTART_REQUIRE", "strace,container" if required else "strace")
    monkeypatch.setattr(engine, "find_engine", lambda: "none at once")
    monkeypatch.setattr(engine, "find_wanted_engine", wanted)
    assert capabilities._PROBES["container"]() == ("none after a long while" if required else "none at once")
    assert capabilities.take_remarks() == (["silent at first"] if required else [])
    assert capabilities.take_remarks() == [], "each is told once"
