"""Every time constant, both presets, and what no fleet can run on."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from inference_fleet.settings import SettingsError, Timings
from inference_fleet.settings.timings import variable_of


def test_production_has_the_values_real_fleets_run_on() -> None:
    production = Timings.production()
    assert (production.heartbeat_stale_s, production.health_tick_s) == (60.0, 15.0)
    assert production.offline_within_s == 75.0
    assert (production.reconnect_grace_s, production.instance_liveness_s) == (90.0, 15.0)
    assert (production.relay_frame_s, production.stream_open_s) == (15.0, 15.0)
    assert production.keepalive_interval_s < 30.0, "below the idle limit of the shortest proxy"


def test_the_drill_detects_faster_and_never_hurries_a_handshake() -> None:
    production, drill = Timings.production(), Timings.drill()
    assert production.offline_within_s / drill.offline_within_s > 15
    assert production.gone_within_s / drill.gone_within_s > 10
    for name in (
        "handshake_s",
        "stream_header_s",
        "stream_open_s",
        "relay_frame_s",
        "backend_start_s",
        "start_s",
    ):
        assert getattr(drill, name) >= 2.0, name


def test_each_field_is_overridden_by_its_own_variable_and_unknown_ones_are_named() -> None:
    environ = {"BLACKSTART_TIMINGS": "drill", "BLACKSTART_TIMING_RECONNECT_GRACE_S": "7.5"}
    assert Timings.from_environ(environ) == replace(Timings.drill(), reconnect_grace_s=7.5)
    for name, value in (("BLACKSTART_TIMING_NONSENSE_S", "1"), ("BLACKSTART_TIMING_HANDSHAKE_S", "soon")):
        with pytest.raises(SettingsError, match=name):
            Timings.from_environ({name: value})
    with pytest.raises(SettingsError, match="drill or production"):
        Timings.from_environ({"BLACKSTART_TIMINGS": "quick"})


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_no_field_takes_a_value_no_fleet_can_run_on(value: float) -> None:
    for field in fields(Timings):
        with pytest.raises(SettingsError, match=variable_of(field.name)):
            replace(Timings.production(), **{field.name: value})


def test_pairs_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(SettingsError, match="less than BLACKSTART_TIMING_HEARTBEAT_STALE_S"):
        replace(Timings.production(), heartbeat_s=61.0)


def test_retention_is_never_below_what_a_departure_needs_to_be_called_gone() -> None:
    short = replace(Timings.production(), departed_retention_floor_s=1.0)
    assert short.departed_retention_s == 2 * short.reconnect_grace_s
    assert Timings.production().departed_retention_s == Timings.production().departed_retention_floor_s
