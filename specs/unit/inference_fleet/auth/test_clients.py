"""Whose address a request came from."""

from __future__ import annotations

import ipaddress

import pytest

from inference_fleet.auth import client_address

TRUSTED = (ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("::1/128"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "expected"),
    [
        ("203.0.113.9", [], "203.0.113.9"),
        ("203.0.113.9", ["198.51.100.1"], "203.0.113.9"),
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["6.6.6.6, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["6.6.6.6, 198.51.100.1, 10.2.2.2"], "198.51.100.1"),
        ("10.0.0.1", ["6.6.6.6", "198.51.100.1"], "198.51.100.1"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("::1", ["[2001:db8::1]"], "2001:db8::1"),
        ("10.0.0.1", ["not an address"], "10.0.0.1"),
        ("10.0.0.1", [], "10.0.0.1"),
        (None, ["198.51.100.1"], "unknown"),
    ],
)
def test_a_header_is_believed_only_as_far_as_trusted_proxies_wrote_it(
    peer: str | None, forwarded: list[str], expected: str
) -> None:
    assert client_address(peer, forwarded, TRUSTED) == expected


def test_nobody_is_trusted_unless_configured() -> None:
    assert client_address("10.0.0.1", ["198.51.100.1"], ()) == "10.0.0.1"
