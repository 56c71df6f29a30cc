"""The operator's page says what the tables say, all of it, and promises no way that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inference_fleet.frontend.errors import CODES
from inference_fleet.route import OUTCOMES
from inference_fleet.settings import Timings
from inference_fleet.tunnel import REFUSALS

PAGE = (Path(__file__).parents[4] / "docs" / "routing.md").read_text()


def section(title: str) -> str:
    return re.split(r"^## ", PAGE.partition(f"## {title}")[2], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> dict[str, list[str]]:
    """Table rows by the code word in their first cell."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            found[cells[0].strip("`")] = cells[1:]
    return found


@pytest.mark.holds("B-47")
def test_every_refusal_is_there_with_when_it_is_sent_and_whether_a_row_is_reaped() -> None:
    table = rows(section("Refusals"))
    assert set(table) == {rule.code for rule in REFUSALS.values()}
    for rule in REFUSALS.values():
        _, when, evidence, reaped = table[rule.code]
        assert len(when) > 20
        assert (evidence == "yes") is rule.evidence, rule.code
        assert reaped.startswith("yes" if rule.evidence else "no"), rule.code


@pytest.mark.holds("B-70")
def test_every_outcome_is_there_none_is_absence_and_presence_is_pointed_at() -> None:
    text = section("Outcomes of an attempt to reach a worker")
    table = rows(text)
    assert set(table) == {outcome.value for outcome in OUTCOMES}
    for outcome, rule in OUTCOMES.items():
        assert (table[outcome.value][1] == "yes") is rule.evidence, outcome
        assert (table[outcome.value][2] == "yes") is rule.try_another, outcome
    assert "None of them is absence" in text
    assert "heartbeat and" in text


@pytest.mark.holds("B-149")
def test_the_recovery_of_a_heartbeat_is_told_from_that_of_a_tunnel() -> None:
    text = " ".join(section("Who decides that a worker is gone").split())
    assert (
        "A heartbeat that recovers says nothing about the tunnel, and a tunnel that recovers says nothing about the "
        "heartbeat"
    ) in text
    assert "heartbeat is fresh and whose tunnel is gone is `unhealthy (tunnel-gone)`" in text
    assert "tunnel lives and whose heartbeat is dead is `unhealthy (heartbeat-path)`" in text
    alone = next(line for line in text.split("| **") if line.startswith("heartbeat**"))
    assert "tunnel" not in alone, "the heartbeat's own row speaks of the tunnel"


@pytest.mark.holds("B-71")
def test_no_sentence_promises_another_way_to_a_worker() -> None:
    text = section("`BLACKSTART_TUNNEL=false`")
    assert "exits at once with\nstatus 2" in text
    assert "there is none" in text
    assert not re.search(r"restores?|direct dial|fall ?back", PAGE, flags=re.IGNORECASE)


@pytest.mark.holds("B-68")
def test_what_peers_are_trusted_with_is_disclosed() -> None:
    text = section("Peers, and what they are trusted with")
    assert "trust each other fully" in text
    assert "receive window" in text
    assert "an id that is merely said opens" in text


def test_every_code_and_timing_the_page_names_exists() -> None:
    for status, code in re.findall(r"`?(\d{3}) `?([a-z_]+)`", PAGE):
        assert CODES[code].status == int(status), code
    fields = set(Timings.__dataclass_fields__)
    for name in re.findall(r"`([a-z_]+_s)`", PAGE):
        assert name in fields, name
