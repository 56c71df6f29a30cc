"""Secrets that are shown and compared."""

from __future__ import annotations

import pytest

from inference_fleet.auth import bearer, same_secret


@pytest.mark.holds("B-26")
def test_an_empty_configured_secret_authorises_nobody() -> None:
    assert not same_secret("", ""), "an empty secret must authorise nobody"
    assert not same_secret("anything", "")
    assert not same_secret("", "token")
    assert same_secret("token", "token"), "the control"
    assert not same_secret("tokem", "token")
    assert not same_secret("tökén", "token")


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", ""),
        ("Bearer", ""),
        ("", ""),
        (None, ""),
        ("Bearer " + "x" * 5000, ""),
    ],
)
def test_a_bearer_header_is_read_or_is_nothing(header: str | None, token: str) -> None:
    assert bearer(header) == token
