"""A request that cannot be taken names the field at fault."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from inference_fleet.backends.babbler.wire import BODY_LIMIT, MAX_TOKENS, BadRequest, read_request

from .served import request_body


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": "x"}] * 257}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x" * 65537}]}, "messages[0].content"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": MAX_TOKENS + 1}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 2}, "n"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"stop": ["ok", ""]}, "stop[1]"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"pace_tokens_per_second": 0}, "pace_tokens_per_second"),
        ({"model": ""}, "model"),
    ],
)
def test_a_field_out_of_its_limits_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_request(msgspec.json.encode(request_body() | fields))

    assert caught.value.status == 400
    assert caught.value.param == param
    message = caught.value.body["error"]["message"]
    assert message.startswith(f"{param}: "), message
    assert message.endswith("; try: change that field"), message


@pytest.mark.parametrize("missing", ["model", "messages"])
def test_a_missing_field_is_named(missing: str) -> None:
    body = request_body()
    del body[missing]

    with pytest.raises(BadRequest, match=f"^{missing}: is required; try: send that field$") as caught:
        read_request(msgspec.json.encode(body))

    assert caught.value.param == missing


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[1]", b"\xff", b'{"unused":' + b"[" * 10_000 + b"]" * 10_000 + b"}"]
)
def test_a_body_that_is_no_request_is_refused_in_words(body: bytes) -> None:
    with pytest.raises(BadRequest, match=r"^the body:? .*; try: "):
        read_request(body)


def test_messages_too_long_together_are_refused() -> None:
    long = [{"role": "user", "content": "x" * 60_000}] * (BODY_LIMIT // 60_000 + 1)

    with pytest.raises(BadRequest, match=r"^messages: .*; try: "):
        read_request(msgspec.json.encode(request_body(messages=long)))


def test_a_request_within_its_limits_is_taken_with_fields_we_have_no_use_for() -> None:
    request = read_request(
        msgspec.json.encode(
            request_body(max_tokens=MAX_TOKENS, stop=["a", "b", "c", "d"], user="me", presence_penalty=0.5)
            | {"messages": [{"role": "user", "content": [{"type": "text", "text": "in parts"}]}]}
        )
    )

    assert request.prompt == "in parts"
    assert request.limit == MAX_TOKENS
    assert request.stops == ("a", "b", "c", "d")
