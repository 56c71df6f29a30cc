"""The pytest front: real clusters as fixtures, and a run that leaves evidence. Imports nothing heavy before a fixture asks."""

from __future__ import annotations

import pytest

from blackstart.pytest_plugin.markers import declare_markers, validate_markers
from blackstart.pytest_plugin.options import add_options, configure_options


def pytest_addoption(parser: pytest.Parser) -> None:
    """The `--bs-*` options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Markers and options."""
    declare_markers(config)
    configure_options(config, seed=None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Markers are judged before anything is deselected."""
    validate_markers(items)
