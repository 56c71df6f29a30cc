"""A node's credential: known here by its hash only, compared in constant time, and never when it is empty."""

from __future__ import annotations

import hashlib
import hmac
from typing import NewType

CredentialVersion = NewType("CredentialVersion", int)

_LONGEST = 1024
_NOBODY = hashlib.sha256(b"no node").hexdigest()


def credential_matches(shown: str, stored_sha256: str | None) -> bool:
    """Whether `shown` is the credential with that hash. A node without a hash takes as long and matches nothing."""
    digest = hashlib.sha256(shown.encode("utf-8", "surrogatepass")).hexdigest()
    same = hmac.compare_digest((stored_sha256 or _NOBODY).encode(), digest.encode())
    return same and bool(stored_sha256) and 0 < len(shown) <= _LONGEST
