"""The pytest front: real clusters as fixtures, and a run that leaves evidence. Imports nothing heavy before a fixture asks."""

from __future__ import annotations

import pytest

from blackstart.pytest_plugin.fixtures import cluster, fleet, infra, journal
from blackstart.pytest_plugin.host import HOST
from blackstart.pytest_plugin.markers import declare_markers
from blackstart.pytest_plugin.options import add_options, configure_options, options_of
from blackstart.pytest_plugin.repeat import pytest_generate_tests, repetition
from blackstart.pytest_plugin.sentinels import add_sentinel
from blackstart.pytest_plugin.session import begin

__all__ = ["add_sentinel", "cluster", "fleet", "infra", "journal", "pytest_generate_tests", "repetition"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The `--bs-*` options."""
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Markers and options: before other plugins, so that their randomness follows the seed."""
    declare_markers(config)
    configure_options(config)


def pytest_report_header(config: pytest.Config) -> str:
    """The seed stands at the top too: an interrupted run has no summary."""
    return f"blackstart: seed {options_of(config).seed}"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """By now xdist has said what this process is, and it has not started its workers yet."""
    begin(session.config)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Leaves the run."""
    host = config.stash.get(HOST, None)
    if host is not None:
        host.close()
