"""The relay request: one hop, from whom the link says, with the worker's request inside."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference_fleet.route import RelayInvalid, RelayRequest
from inference_fleet.tunnel import StreamRequest

REQUEST = StreamRequest(
    tag="backend", target="127.0.0.1:20051", process_key="m#1", node="n", epoch=7, budget_ms=900
)


def frame(**changes: Any) -> bytes:
    body: dict[str, Any] = json.loads(RelayRequest("b", REQUEST).encode())
    for path, value in changes.items():
        part, _, key = path.partition("__")
        if key:
            body[part][key] = value
        else:
            body[part] = value
    return json.dumps(body).encode()


@pytest.mark.holds("B-43", "B-62")
def test_the_workers_request_travels_inside_and_arrives_whole() -> None:
    body = json.loads(RelayRequest("b", REQUEST).encode())
    assert body["v"] == 1
    assert body["relay"] == {"from": "b", "hop": 1}
    assert body["request"] == json.loads(REQUEST.encode())
    assert RelayRequest.decode(frame(), peer="b") == RelayRequest("b", REQUEST)


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "cannot be read"),
        (b"[" * 5000, "cannot be read"),
        (frame(v=2), "version 2"),
        (frame(v=2, request={}), "version 2"),
        (frame(relay__hop=2), "one hop"),
        (frame(relay__hop=0), "one hop"),
        (frame(relay__from="c"), "speaks for c"),
        (frame(request__epoch="seven"), "cannot be read"),
        (frame(request={}), "cannot be read"),
    ],
)
def test_whatever_else_is_asked_is_named_and_not_served(payload: bytes, why: str) -> None:
    with pytest.raises(RelayInvalid, match=f"{why}.*; try: "):
        RelayRequest.decode(payload, peer="b")


@pytest.mark.holds("B-62")
def test_a_budget_only_shortens_and_no_budget_stays_none() -> None:
    relay = RelayRequest("b", REQUEST)
    assert relay.aged(0.25).request.budget_ms == 650
    assert relay.aged(5.0).request.budget_ms == 1, "never zero: a literal zero would refuse healthy traffic"
    without = RelayRequest("b", StreamRequest(tag="http", node="n", epoch=1))
    assert without.aged(5.0).request.budget_ms is None
    assert b"budget" not in without.encode()
