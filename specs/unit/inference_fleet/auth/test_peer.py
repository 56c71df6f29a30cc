"""What opens a peer link, and each thing that does not."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from inference_fleet.auth import PeerRefused, PeerTokens

TTL_S = 60.0


def tokens(instance: str, *, secret: str = "cluster-secret", ttl_s: float = TTL_S) -> PeerTokens:
    return PeerTokens(cluster_secret=secret, instance_id=instance, ttl_s=ttl_s)


@pytest.mark.holds("B-68")
def test_a_token_speaks_for_its_maker_to_its_audience_for_a_while() -> None:
    token = tokens("a").issue("b", now=1000.0)
    assert tokens("b").check(token, now=1000.0) == "a"
    assert tokens("b").check(token, now=1000.0 + TTL_S - 1) == "a"


@pytest.mark.holds("B-68")
def test_a_token_for_another_replica_or_another_time_opens_nothing() -> None:
    token = tokens("a").issue("b", now=1000.0)
    with pytest.raises(PeerRefused, match="not for this instance"):
        tokens("c").check(token, now=1000.0)
    with pytest.raises(PeerRefused, match="expired"):
        tokens("b").check(token, now=1000.0 + TTL_S)
    with pytest.raises(PeerRefused, match="longer than a token may be"):
        tokens("b").check(tokens("a", ttl_s=1000 * TTL_S).issue("b", now=1000.0), now=1000.0)


@pytest.mark.holds("B-68")
def test_a_replica_never_admits_itself() -> None:
    token = tokens("b").issue("b", now=1000.0)
    with pytest.raises(PeerRefused, match="names this instance itself"):
        tokens("b").check(token, now=1000.0)


@pytest.mark.holds("B-68", "B-26")
def test_an_empty_cluster_secret_trusts_nobody_and_makes_no_token() -> None:
    forged = base64.urlsafe_b64encode(b'["a","b",1e9]').decode()
    for token in ("", ".", forged, tokens("a").issue("b", now=1000.0)):
        with pytest.raises(PeerRefused, match="no peer is trusted"):
            tokens("b", secret="").check(token, now=1000.0)
    with pytest.raises(PeerRefused):
        tokens("a", secret="").issue("b", now=1000.0)


def test_a_self_declared_id_without_the_secret_is_a_forgery() -> None:
    honest = tokens("a").issue("b", now=1000.0)
    body, _, signature = honest.partition(".")
    claims = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)).replace(b'"a"', b'"z"')
    renamed = base64.urlsafe_b64encode(claims).decode().rstrip("=")
    for token in (f"{renamed}.{signature}", f"{body}.", f"{body}.{signature}x", "x.y", "ü.ü", "." * 3000):
        with pytest.raises(PeerRefused):
            tokens("b").check(token, now=1000.0)
    with pytest.raises(PeerRefused, match="not signed"):
        tokens("b", secret="another-cluster").check(honest, now=1000.0)


def test_the_key_is_a_subkey_so_a_token_is_no_use_where_the_secret_itself_signs() -> None:
    body, _, signature = tokens("a").issue("b", now=1000.0).partition(".")
    claims = base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    direct = hmac.new(b"cluster-secret", claims, hashlib.sha256).digest()
    assert base64.urlsafe_b64encode(direct).decode().rstrip("=") != signature
