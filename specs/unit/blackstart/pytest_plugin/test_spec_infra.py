"""Which server a spec is given: the run's own, or the one beside it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import pytest

from blackstart.pytest_plugin.spec_infra import SpecInfra

if TYPE_CHECKING:
    from blackstart.process import Spawner
    from blackstart.record import Run

NO_RUN = cast("Run", None)  # nothing is started before a server is asked for
NO_SPAWNER = cast("Spawner", None)


@pytest.mark.parametrize(
    ("option", "wanted", "provider"),
    [
        ("embedded", None, "embedded"),
        ("embedded", "container", "container"),
        ("container", "container", "container"),
        ("container", None, "container"),
    ],
)
def test_a_spec_that_wants_another_server_gets_the_one_beside_the_runs(
    option: str, wanted: str | None, provider: str
) -> None:
    infra = SpecInfra(NO_RUN, NO_SPAWNER, option, wanted=wanted, adopting=nullcontext)
    assert str(infra.choice) == provider
    assert not infra.started
