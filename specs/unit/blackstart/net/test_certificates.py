"""An authority of a run's own: what it signs is believed by who trusts it, in time, by name, and by nobody else."""

from __future__ import annotations

import shutil
import ssl
from typing import TYPE_CHECKING

import pytest

from blackstart.net.certificates import Authority, Certificate, NoCertificate

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.needs("openssl")


def believed(shown: Certificate, *, trusted: Path, host: str) -> str:
    """A whole handshake in memory; the error a client gives, or nothing."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(shown.cert, shown.key)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cafile=trusted).wrap_bio(down, up, server_hostname=host)
    server = serving.wrap_bio(up, down, server_side=True)
    for end in (client, server, client):
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return ""


def test_what_it_signs_is_believed_in_time_by_name_and_by_who_trusts_it(tmp_path: Path) -> None:
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    good = ours.issue("good", hosts=["127.0.0.1", "replica.test"])
    assert believed(good, trusted=ours.cert, host="127.0.0.1") == ""
    assert believed(good, trusted=ours.cert, host="replica.test") == ""
    assert "not valid for 'other.test'" in believed(good, trusted=ours.cert, host="other.test")
    assert "issuer certificate" in believed(good, trusted=other.cert, host="127.0.0.1")
    old = ours.issue("old", hosts=["127.0.0.1"], days=-1)
    assert "expired" in believed(old, trusted=ours.cert, host="127.0.0.1")


def test_what_cannot_be_made_is_an_error_with_what_openssl_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Authority(tmp_path)
    with pytest.raises(NoCertificate, match=r"(?s)openssl x509=1: .*; try: "):
        ours.issue("nameless", hosts=["a b,,"])
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(
        NoCertificate, match=r"^openssl: is not on PATH, and it makes .*; try: install the package"
    ):
        ours.issue("good", hosts=["127.0.0.1"])
