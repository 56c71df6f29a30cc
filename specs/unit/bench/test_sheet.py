"""Which ratios follow from what was measured, and that each is taken within its round."""

from __future__ import annotations

import pytest

from bench.floors import BY_FIGURE
from bench.sheet import CHAIN, RAW, RAW_TLS, UNITS, Sheet

STAND = "takeover/plain"


def two_rounds() -> Sheet:
    """Speeds in MB/s; in the second round the machine is twice as fast."""
    sheet = Sheet()
    for speed in (1.0, 2.0):
        sheet.add(RAW, "down", 1000 * speed)
        sheet.add(CHAIN, "down", 500 * speed)
        sheet.add(STAND, "down", 200 * speed)
        sheet.add(STAND, "relayed-down", 100 * speed)
    return sheet


def test_a_stand_is_set_against_both_controls_of_its_round() -> None:
    figures = two_rounds().figures(STAND)
    assert figures["down/raw"] == [0.2, 0.2]
    assert figures["down/chain"] == [0.4, 0.4]


def test_a_relayed_transfer_is_told_as_time_over_the_direct_one() -> None:
    assert two_rounds().figures(STAND)["relayed-down/direct"] == [2.0, 2.0], (
        "half the speed is twice the time"
    )


def test_a_direction_that_was_not_measured_gives_no_ratio() -> None:
    assert not {"up/raw", "up/chain", "relayed-up/direct"} & set(two_rounds().figures(STAND))


def test_controls_are_compared_with_nothing() -> None:
    assert set(two_rounds().figures(RAW)) == {"down"}


def test_only_what_is_encrypted_is_set_against_what_encryption_costs() -> None:
    sheet = two_rounds()
    for speed in (1.0, 2.0):
        sheet.add(RAW_TLS, "down", 400 * speed)
        sheet.add("takeover/tls", "down", 100 * speed)
    assert sheet.figures("takeover/tls")["down/raw-tls"] == [0.25, 0.25]
    assert "down/raw-tls" not in sheet.figures(STAND)
    assert set(sheet.figures(RAW_TLS)) == {"down"}


def test_controls_come_first() -> None:
    sheet = two_rounds()
    sheet.add("asgi/plain", "down", 1.0)
    assert sheet.subjects == [CHAIN, RAW, "asgi/plain", STAND]


def test_a_control_that_missed_a_round_is_an_error_and_no_ratio() -> None:
    sheet = two_rounds()
    sheet.add(STAND, "down", 300.0)
    with pytest.raises(ValueError, match="3 rounds over 2 rounds"):
        sheet.figures(STAND)


def test_every_bound_is_of_a_figure_this_sheet_can_hold() -> None:
    sheet = Sheet()
    for subject in (RAW, CHAIN):
        for figure in ("down", "up"):
            sheet.add(subject, figure, 1.0)
    measured = {*UNITS, "latency", "relayed-latency"}
    for figure in measured:
        sheet.add(STAND, figure, 1.0)
    assert set(BY_FIGURE) <= set(sheet.figures(STAND))


def test_cpu_seconds_are_kept_by_process_and_round() -> None:
    sheet = two_rounds()
    sheet.add_cpu(STAND, "down", {"worker": 1.0, "owner": 2.0})
    sheet.add_cpu(STAND, "down", {"worker": 3.0, "owner": 4.0})
    assert sheet.cpu[STAND]["down"] == {"worker": [1.0, 3.0], "owner": [2.0, 4.0]}
