"""What one replica shows another: a short-lived token for one audience, under a subkey of the cluster secret.

A bare instance id proves nothing, since anybody can say one; the token binds who speaks, to whom, and until
when. An empty cluster secret makes no token and accepts none.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Annotated

import msgspec

_LABEL = b"blackstart peer link v1"
_LONGEST = 1024
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class PeerRefused(Exception):
    """A token that opens nothing; the text says why, for our own log and never for the caller."""


class _Claims(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    instance: _Id
    audience: _Id
    expires: float


class PeerTokens:
    """Makes and checks peer tokens of one instance; the time (seconds, any clock the replicas share) comes in.

    | refused when                                       | why                                    |
    |----------------------------------------------------|----------------------------------------|
    | no cluster secret is configured                    | no replica is trusted                  |
    | the signature is not ours                          | another cluster, or a forgery          |
    | the audience is not this instance                  | a token for one replica opens no other |
    | it is expired, or good for longer than twice `ttl` | a stolen token dies soon               |
    | it names this instance itself                      | a replica never relays to itself       |
    """

    def __init__(self, *, cluster_secret: str, instance_id: str, ttl_s: float) -> None:
        self._key = (
            hmac.new(cluster_secret.encode(), _LABEL, hashlib.sha256).digest() if cluster_secret else None
        )
        self._instance_id = instance_id
        self._ttl_s = ttl_s

    def issue(self, audience: str, *, now: float) -> str:
        """A token this instance shows to `audience`."""
        if self._key is None:
            raise PeerRefused(
                "no cluster secret is configured (BLACKSTART_CLUSTER_SECRET), so no peer can be asked"
            )
        claims = msgspec.json.encode(_Claims(self._instance_id, audience, now + self._ttl_s))
        return f"{_text(claims)}.{_text(self._sign(self._key, claims))}"

    def check(self, token: str, *, now: float) -> str:
        """The instance a token speaks for; `PeerRefused` when it opens nothing."""
        if self._key is None:
            raise PeerRefused(
                "no cluster secret is configured (BLACKSTART_CLUSTER_SECRET), so no peer is trusted"
            )
        body, _, signature = token.partition(".")
        try:
            claims_bytes, shown = _bytes(body), _bytes(signature)
        except (binascii.Error, ValueError):
            raise PeerRefused("the token is not one of ours") from None
        if not hmac.compare_digest(shown, self._sign(self._key, claims_bytes)):
            raise PeerRefused("the token is not signed with this cluster's secret")
        try:
            claims = msgspec.json.decode(claims_bytes, type=_Claims)
        except msgspec.MsgspecError as error:
            raise PeerRefused(f"the token's claims cannot be read: {error}") from None
        if claims.audience != self._instance_id:
            raise PeerRefused(
                f"the token of {claims.instance} is for {claims.audience}, not for this instance"
            )
        if not now < claims.expires <= now + 2 * self._ttl_s:
            raise PeerRefused(
                f"the token of {claims.instance} expired, or is good for longer than a token may be"
            )
        if claims.instance == self._instance_id:
            raise PeerRefused("the token names this instance itself")
        return claims.instance

    @staticmethod
    def _sign(key: bytes, claims: bytes) -> bytes:
        return hmac.new(key, claims, hashlib.sha256).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    if not text.isascii() or not 0 < len(text) <= _LONGEST:
        raise ValueError("length")
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
