"""What a person is told of a failed handshake, through whatever wrapped it."""

from __future__ import annotations

import ssl

import pytest

from inference_fleet.tunnel.certificates import tls_failure


def wrapped(error: BaseException, *, chained: bool) -> BaseException:
    """The error inside another, as libraries wrap them: raised from it, or merely while it was handled."""
    outer = ConnectionError("connect failed")
    outer.__cause__, outer.__context__ = (error, None) if chained else (None, error)
    again = ConnectionError("all attempts failed")
    again.__cause__ = outer
    return again


def ssl_error(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] it failed (_ssl.c:1000)")
    error.reason = reason
    return error


@pytest.mark.parametrize("chained", [True, False])
def test_the_check_that_failed_is_named_and_what_to_look_at(chained: bool) -> None:  # noqa: FBT001 -- parametrised
    error = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")
    error.verify_message = "certificate has expired."
    said = tls_failure(wrapped(error, chained=chained), remedy="a clock")
    assert said == "its certificate is not believed: certificate has expired; try: a clock"
    plain = tls_failure(wrapped(ssl_error("WRONG_VERSION_NUMBER"), chained=chained))
    assert plain.startswith("does not speak TLS there; try: ")
    other = tls_failure(ssl_error("SSLV3_ALERT_BAD_CERTIFICATE"))
    assert (
        other
        == "TLS failed: SSLV3_ALERT_BAD_CERTIFICATE; try: the log of the other end, which says what it refused"
    )


def test_what_has_nothing_to_do_with_tls_is_not_told_as_if_it_had() -> None:
    assert tls_failure(wrapped(ConnectionRefusedError("refused"), chained=True)) == ""
