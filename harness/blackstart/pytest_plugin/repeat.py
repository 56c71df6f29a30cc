"""`--bs-repeat N`: every collected spec N times, each a test of its own; one green run proves little where threads meet."""

from __future__ import annotations

import pytest

from blackstart.pytest_plugin.options import options_of

_NAME = "_blackstart_repetition"


@pytest.fixture(name=_NAME)
def repetition(request: pytest.FixtureRequest) -> int:
    """Which repetition this is, from 0."""
    number: int = request.param
    return number


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One more parameter for every spec."""
    times = options_of(metafunc.config).repeat
    if times > 1:
        metafunc.fixturenames.append(_NAME)
        metafunc.parametrize(
            _NAME, range(times), ids=[f"{number + 1}-of-{times}" for number in range(times)], indirect=True
        )
