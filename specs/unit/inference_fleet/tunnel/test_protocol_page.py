"""`docs/protocol.md` says what the tables of the code say: no code, flag, limit or time is there that is not here, nor missing."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, get_args, get_type_hints

import msgspec
import pytest
from specs.unit.inference_fleet.vectors import DOCS, VECTORS

from inference_fleet.auth import peer as peer_tokens
from inference_fleet.cluster import EPOCH_LEAP_MAX
from inference_fleet.frontend import peer_dial, tunnel_route
from inference_fleet.frontend.errors import CODES
from inference_fleet.frontend.handshakes import AT_ONCE
from inference_fleet.route import relay_frame
from inference_fleet.settings import Timings
from inference_fleet.tunnel import FRAME_LIMIT, REFUSALS, Limits, StreamRequest
from inference_fleet.tunnel.websocket import IDLE_FRAMES, MESSAGE_BYTES, CloseCode
from inference_fleet.tunnel.worker.dial import BOOT_HEADER, EPOCH_HEADER, SEEN_EPOCH_HEADER, SUBPROTOCOL
from inference_fleet.tunnel.yamux import Breach, wire

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = (DOCS / "protocol.md").read_text()


def section(number: str) -> str:
    """The text of one numbered section, its own sub-sections included."""
    parts = re.split(r"^(#{2,3}) ([\d.]+) .*$", PAGE, flags=re.MULTILINE)
    found = [
        parts[at + 2]
        for at in range(1, len(parts), 3)
        if parts[at + 1].rstrip(".") == number or parts[at + 1].startswith(f"{number}.")
    ]
    assert found, f"the page has no section {number}"
    return "".join(found)


def rows(text: str) -> Iterator[list[str]]:
    """The cells of every table row, heads and rules left out."""
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("|") and not line.startswith("|-") and not following.startswith("|-"):
            yield [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def words(number: str) -> dict[str, list[str]]:
    """Rows by the word in their first cell."""
    found = {}
    for cells in rows(section(number)):
        if (word := re.fullmatch(r"`([^`]+)`", cells[0])) is not None:
            found[word[1]] = cells[1:]
    return found


def test_every_refusal_is_there_and_whether_it_is_evidence() -> None:
    told = words("5.3")
    codes = {code: cells for code, cells in told.items() if cells[0] in {"yes", "no"}}
    assert {code: cells[0] == "yes" for code, cells in codes.items()} == {
        rule.code: rule.evidence for rule in REFUSALS.values()
    }


def test_every_breach_is_there() -> None:
    assert set(words("4.8")) == {breach.value for breach in Breach}


def test_every_limit_is_there_with_its_value() -> None:
    limits = Limits()
    told = {name: int(cells[0]) for name, cells in words("4.9").items()}
    assert told == {field.name: getattr(limits, field.name) for field in fields(limits)}
    assert f"first window | {wire.INITIAL_WINDOW:,} bytes" in section("4.5")
    assert f"{limits.frame_bytes:,} bytes of payload" in section("4.6")
    assert f"the last {limits.remembered_ids} may still be opened" in section("4.4")


def test_types_flags_and_go_away_codes_are_those_of_the_wire() -> None:
    types = {cells[1]: int(cells[0]) for cells in rows(section("4.2"))}
    assert types == {"data": wire.DATA, "window": wire.WINDOW, "ping": wire.PING, "go-away": wire.GO_AWAY}
    flags = {cells[0]: int(cells[1], 16) for cells in rows(section("4.3"))}
    assert flags == {"SYN": wire.SYN, "ACK": wire.ACK, "FIN": wire.FIN, "RST": wire.RST}
    codes = {int(cells[0]): cells[1] for cells in rows(section("4.7"))}
    assert codes == wire.GO_AWAY_MEANING


def test_flags_that_may_not_stand_together_are_told_on_both_sides() -> None:
    forbidden = {cells[0]: set(cells[3].split(", ")) for cells in rows(section("4.3"))}
    bits = {"SYN": wire.SYN, "ACK": wire.ACK, "FIN": wire.FIN, "RST": wire.RST}
    for one, other in [(a, b) for a in bits for b in bits if a != b]:
        try:
            wire.unpack(wire.pack(wire.WINDOW, bits[one] | bits[other], 1, 0))
        except wire.ProtocolError:
            legal = False
        else:
            legal = True
        assert legal is (other not in forbidden[one]), f"{one} with {other}"


def _bounds(annotation: Any) -> dict[str, int]:
    """The limits msgspec holds a field to."""
    bounds: dict[str, int] = {}
    for part in (annotation, *get_args(annotation)):
        for meta in getattr(part, "__metadata__", ()):
            if isinstance(meta, msgspec.Meta):
                bounds |= {
                    name: value
                    for name in ("ge", "le", "min_length", "max_length")
                    if (value := getattr(meta, name)) is not None
                }
    return bounds


def test_every_field_of_a_request_is_there_with_its_bounds() -> None:
    told = words("5.2")
    hints = get_type_hints(StreamRequest, include_extras=True)
    assert list(told) == list(StreamRequest.__struct_fields__)
    exact = {2**53: "2^53", 2**63 - 1: "2^63-1"}
    assert sum(len(_bounds(hint)) for hint in hints.values()) > 10, "control: the code has bounds"
    for name, (kind, bounds, required, _) in told.items():
        assert (kind == "integer") is (name in {"v", "epoch", "budget_ms"}), name
        for value in _bounds(hints[name]).values():
            assert re.search(rf"(?<!\d){re.escape(exact.get(value, str(value)))}(?!\d)", bounds), (
                f"{name}: {value} is not in {bounds!r}"
            )
        must = name in {"tag", "node", "epoch"}
        assert (required == "MUST") is must, name


@pytest.mark.parametrize("number", ["2.2", "6.1"])
def test_every_answer_to_a_dial_has_the_status_its_code_has(number: str) -> None:
    text = section(number)
    for status, code in re.findall(r"\| (\d{3}) \| `([a-z_]+)` \|", text):
        assert CODES[code].status == int(status), code
    for code in re.findall(r"`([a-z]+_[a-z_]+)`", text):
        assert code in CODES or code in Timings.__dataclass_fields__, code


def test_every_reason_a_dial_is_refused_for_is_there() -> None:
    told = {cells[1].strip("`") for cells in rows(section("2.2"))}
    module = tunnel_route.__doc__ or ""
    assert set(re.findall(r"^\| \d{3} `([a-z_]+)`", module, flags=re.MULTILINE)) <= told
    assert f"{AT_ONCE} dials" in section("2.2")
    assert f"more than {EPOCH_LEAP_MAX:,} past" in section("2.2")


def test_names_and_numbers_of_the_wire_are_the_codes() -> None:
    dialled = section("2")
    for name in (SUBPROTOCOL, BOOT_HEADER, SEEN_EPOCH_HEADER, EPOCH_HEADER):
        assert f"`{name}" in dialled or f" {name}`" in dialled, name
    assert SUBPROTOCOL == tunnel_route.SUBPROTOCOL
    peer = section("6")
    for name in (peer_dial.PATH, peer_dial.SUBPROTOCOL, peer_tokens._LABEL.decode()):
        assert name in peer, name
    assert f"a cap of {relay_frame.FRAME_LIMIT} bytes" in peer
    assert f'"hop":{relay_frame.HOP}' in peer
    assert f"1 to {FRAME_LIMIT})" in section("5.1")
    sizes = section("3")
    assert f"over {MESSAGE_BYTES >> 20} MiB" in sizes
    assert f"more than {IDLE_FRAMES} pings" in sizes
    told = {int(cells[0]) for cells in rows(sizes) if cells[0].isdigit()}
    assert {int(code) for code in CloseCode} - {CloseCode.NO_STATUS} <= told


def test_every_time_the_page_names_exists_and_has_the_value_it_says() -> None:
    timings = Timings.production()
    told = re.findall(r"`([a-z_]+_s)`(?: \((\d+(?:\.\d+)?)\))?", PAGE)
    assert len(told) > 15, "control: the page names times"
    for name, value in told:
        assert name in Timings.__dataclass_fields__, name
        if value:
            assert getattr(timings, name) == float(value), name
    assert {name for name, _ in told} == {name for name, value in told if value}, "a time without its value"


def test_every_list_of_vectors_is_explained_and_every_one_explained_is_there() -> None:
    assert set(words("10")) == set(VECTORS) - {"about"}
    for name, rows_ in VECTORS.items():
        if isinstance(rows_, list):
            named = [row["name"] for row in rows_]
            assert len(set(named)) == len(named), f"two vectors of {name} have one name"


def test_what_the_page_says_holds_a_promise_is_there() -> None:
    here = DOCS.parent / "specs/unit/inference_fleet"
    named = re.findall(r"`(?:specs/unit/inference_fleet/)?([a-z_/]*test_[a-z_]+\.py)`", section("13"))
    assert len(named) > 10
    for path in named:
        assert (here / path).is_file() or list(here.glob(f"*/{path}")), path
