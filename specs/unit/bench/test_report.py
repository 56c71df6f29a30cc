"""One sheet, told to people and to machines alike."""

from __future__ import annotations

import json

from bench.floors import judge
from bench.report import as_json, rendered
from bench.sheet import CHAIN, RAW, Sheet

STAND = "takeover/plain"
SETTINGS = {"python": "CPython 3.11.2", "rounds": 3}


def three_rounds() -> Sheet:
    sheet = Sheet()
    for value in (90.0, 100.0, 120.0):
        sheet.add(RAW, "down", 1000.0)
        sheet.add(CHAIN, "down", 400.0)
        sheet.add(STAND, "down", value)
    sheet.add_cpu(STAND, "down", {"worker": 1.25, "owner": 2.5})
    return sheet


def test_people_read_median_spread_floor_and_goal_in_one_line() -> None:
    sheet = three_rounds()
    text = rendered(sheet, settings=SETTINGS, judgements=[])
    line = next(line for line in text.splitlines() if line.startswith("  down/raw "))
    assert line.split() == ["down/raw", "0.1", "0.09", "0.12", "30%", "0.17", "0.3"]


def test_what_was_set_comes_first() -> None:
    text = rendered(three_rounds(), settings=SETTINGS, judgements=[])
    assert text.splitlines()[:2] == ["python: CPython 3.11.2", "rounds: 3"]


def test_the_missed_floor_is_named_and_counted() -> None:
    sheet = three_rounds()
    found = judge(STAND, sheet.medians(STAND))
    text = rendered(sheet, settings=SETTINGS, judgements=found)
    assert "MISSED takeover/plain down/raw: 0.1, floor at least 0.17" in text
    assert text.splitlines()[-1] == "floors: 0 held, 2 missed"


def test_cpu_seconds_stand_under_their_process_and_are_summed() -> None:
    lines = rendered(three_rounds(), settings=SETTINGS, judgements=[]).splitlines()
    head = next(line for line in lines if line.startswith("CPU seconds a GB"))
    row = next(line for line in lines if line.startswith("  takeover/plain down"))
    assert row.split()[-3:] == ["1.250", "2.500", "3.750"]
    assert row.index("2.500") + len("2.500") == head.index("owner") + len("owner"), "under its own name"


def test_machines_read_the_same_with_every_round() -> None:
    sheet = three_rounds()
    found = judge(STAND, sheet.medians(STAND))
    told = json.loads(json.dumps(as_json(sheet, settings=SETTINGS, judgements=found)))
    figure = told["figures"][STAND]["down"]
    assert figure == {
        "median": 100.0,
        "low": 90.0,
        "high": 120.0,
        "unit": "MB/s",
        "rounds": [90.0, 100.0, 120.0],
    }
    assert told["held"] is False
    assert [(floor["figure"], floor["held"]) for floor in told["floors"]] == [
        ("down/raw", False),
        ("down/chain", False),
    ]
    assert told["cpu_s_per_gb"][STAND]["down"] == {"worker": 1.25, "owner": 2.5}


def test_a_report_without_floors_counts_as_held() -> None:
    assert as_json(three_rounds(), settings={}, judgements=[])["held"] is True


def test_a_control_has_no_floor() -> None:
    sheet = three_rounds()
    sheet.add(RAW, "latency", 20.0)
    line = next(
        line
        for line in rendered(sheet, settings={}, judgements=[]).splitlines()
        if line.startswith("  latency ")
    )
    assert line.split() == ["latency", "20", "20", "20", "0%"]
