"""What `docs/protocol-vectors.json` says of peer tokens is what a replica makes, believes and refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest
from specs.unit.inference_fleet.vectors import vectors

from inference_fleet.auth import PeerRefused, PeerTokens


def of(vector: dict[str, Any], instance: str) -> PeerTokens:
    return PeerTokens(cluster_secret=vector["secret"], instance_id=instance, ttl_s=vector["ttl_s"])


@vectors("peer_tokens")
def test_a_token_opens_what_the_page_says_and_nothing_else(vector: dict[str, Any]) -> None:
    checking = of(vector, vector["audience"])
    if "instance" in vector:
        assert checking.check(vector["token"], now=vector["now"]) == vector["instance"]
        return
    with pytest.raises(PeerRefused, match=re.escape(vector["refused"])):
        checking.check(vector["token"], now=vector["now"])


@vectors("peer_tokens", only="claims")
def test_a_token_is_made_as_the_page_says(vector: dict[str, Any]) -> None:
    making = of(vector, vector["instance"])
    assert making.issue(vector["audience"], now=vector["now"]) == vector["token"]
    assert making._key is not None
    assert making._key.hex() == vector["subkey"]
