"""One shape for every failure."""

from __future__ import annotations

import json

import pytest

from inference_fleet.frontend.errors import CODES, ApiError, error_response, retry_after

CONTRACT = {
    "unauthorized": 401,
    "forbidden": 403,
    "name_taken": 409,
    "model_not_found": 404,
    "no_route": 503,
    "loading": 503,
    "stale_owner": 503,
    "rate_limited": 429,
    "body_too_large": 413,
    "invalid": 400,
}


def test_the_codes_of_the_contract_have_their_statuses() -> None:
    assert {code: CODES[code].status for code in CONTRACT} == CONTRACT


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_code_makes_the_same_shape(code: str) -> None:
    answer = error_response(ApiError(code, "what happened", headers=retry_after(0.2)))
    assert answer.status_code == CODES[code].status
    assert json.loads(bytes(answer.body)) == {
        "error": {"message": "what happened", "type": CODES[code].type, "code": code}
    }
    assert answer.headers["retry-after"] == "1"


def test_a_wait_is_rounded_up() -> None:
    assert [retry_after(seconds)["Retry-After"] for seconds in (0.0, 1.0, 1.2, 59.5)] == ["1", "1", "2", "60"]
