"""Bearer tokens and shared secrets: read from a header, compared in constant time, and never true when empty."""

from __future__ import annotations

import hmac

_LONGEST = 4096


def bearer(authorization: str | None) -> str:
    """The token of an `Authorization: Bearer` header; empty when there is none."""
    if not authorization or len(authorization) > _LONGEST:
        return ""
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def same_secret(shown: str, configured: str) -> bool:
    """Whether what was shown is the configured secret; an empty configured secret authorises nobody."""
    return bool(configured) and hmac.compare_digest(shown.encode(), configured.encode())
