"""What a person is told when TLS did not come about: which check failed, on what, and what to look at."""

from __future__ import annotations

import ssl
from typing import Final

REMEDY: Final = "SSL_CERT_FILE for who signed it, the URL for the name in it"
_HOPS = 8
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE"})


def tls_failure(error: BaseException, *, remedy: str = REMEDY) -> str:
    """The sentence for an error that TLS is at the bottom of, through whatever wrapped it; empty for any other."""
    cause: BaseException | None = error
    for _ in range(_HOPS):
        if cause is None or isinstance(cause, ssl.SSLError):
            break
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not believed: {cause.verify_message.rstrip('.')}; try: {remedy}"
    if isinstance(cause, ssl.SSLError):
        if cause.reason in _NOT_TLS:
            return "does not speak TLS there; try: the address of one that does, or http:// for a plain one"
        return (
            f"TLS failed: {cause.reason or cause}; try: the log of the other end, which says what it refused"
        )
    return ""
