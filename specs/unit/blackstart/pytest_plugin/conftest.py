"""Specs of the plugin run a real pytest of their own, in a folder of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Inner = Callable[..., pytest.RunResult]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment has no setting of ours."""
    for name in ("CI", "BLACKSTART_REQUIRE", "BLACKSTART_POSTGRES", "BLACKSTART_TIME_FACTOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, bare: None) -> Inner:  # noqa: ARG001 - it acts
    """`inner(source, *arguments, VARIABLE="value")` runs pytest on one file; the environment is otherwise empty of ours."""

    def run(source: str, *arguments: str, **environment: str) -> pytest.RunResult:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        pytester.makepyfile(test_inner=source)
        # most of such a run is its start, and most of that what these import
        unused = ["cacheprovider", "anyio"]
        unused += [] if "hypothesis" in source else ["hypothesispytest"]
        unused += [] if "-n" in arguments else ["xdist"]
        return pytester.runpytest_subprocess(*(f"-pno:{name}" for name in unused), *arguments)

    return run
