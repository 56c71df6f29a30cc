"""A fleet that cannot be started is refused by name before anything is."""

from __future__ import annotations

from typing import Any

import pytest

from blackstart.fleet.options import FleetOptions, OptionError
from inference_fleet.settings import SettingsError, Timings


def test_the_default_fleet_is_two_replicas_and_two_workers_on_drill_timings() -> None:
    options = FleetOptions()
    assert options.node_names == ("frontend-0", "frontend-1", "worker-0", "worker-1")
    assert options.timings == Timings.drill()


def test_single_timings_are_overridden_over_the_preset() -> None:
    options = FleetOptions(preset="production", timings_s={"reconnect_grace_s": 7.0})
    assert options.timings.reconnect_grace_s == 7.0
    assert options.timings.heartbeat_s == Timings.production().heartbeat_s


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"frontends": 0}, "frontends=0: must be from 1 to 64; try: frontends=2"),
        ({"workers": -1}, "workers=-1: must be from 0 to 64"),
        ({"workers": 65}, "workers=65: must be from 0 to 64"),
        ({"preset": "fast"}, "preset=fast: no such preset; try: drill or production"),
        ({"tokens_per_second": 0.0}, "tokens_per_second=0.0: must be above 0"),
        ({"timings_s": {"nap_s": 1.0}}, "timings_s=.*nap_s.*try: fields of Timings"),
        ({"env": {"worker-9": {}}}, "node=worker-9: is not in this fleet; try: one of frontend-0"),
        ({"peer_links": True, "frontends": 3}, "peer_links=True: with 3 frontends a cut .* try: frontends=2"),
        ({"peer_links": True, "advertise": False}, "peer_links=True: nobody dials .* try: advertise=True"),
        (
            {"commands": dict.fromkeys("abc", ("true",))},
            "commands=a, b, c: a worker has no ports .* try: 2 at most",
        ),
        ({"faketime": frozenset({"frontend-2"})}, "node=frontend-2: is not in this fleet"),
    ],
)
def test_an_option_no_fleet_can_be_built_from_names_itself_and_the_remedy(
    given: dict[str, Any], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        FleetOptions(**given)


def test_timings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"BLACKSTART_TIMING_HEARTBEAT_S=9.0: must be less than"):
        FleetOptions(timings_s={"heartbeat_s": 9.0})
