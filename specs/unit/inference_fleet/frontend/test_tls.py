"""The files that TLS takes: both or neither, read once at the start, and named when they cannot serve."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from blackstart.net.certificates import Authority, Certificate
from inference_fleet.frontend.server import serve
from inference_fleet.frontend.tls import peer_trust, server_context
from inference_fleet.settings import SettingsError

from .served import settings_of

if TYPE_CHECKING:
    from inference_fleet.settings import FrontendSettings

pytestmark = pytest.mark.needs("openssl")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def replica(authority: Authority) -> Certificate:
    return authority.issue("replica", hosts=["127.0.0.1"])


def settings(cert: Path | None, key: Path | None, ca: Path | None = None) -> FrontendSettings:
    made = settings_of("postgresql://db/fleet", Path("data"))
    return replace(made, tls_cert_file=cert, tls_key_file=key, peer_ca_file=ca)


def with_a_password(key: Path, to: Path) -> Path:
    command = ["openssl", "pkey", "-in", str(key), "-out", str(to), "-aes128", "-passout", "pass:hunter22"]
    subprocess.run(command, check=True, capture_output=True)
    return to


def test_without_files_there_is_no_tls_and_with_both_nothing_older_than_1_2(replica: Certificate) -> None:
    assert server_context(settings(None, None)) is None
    context = server_context(settings(replica.cert, replica.key))
    assert context is not None
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_file_that_cannot_serve_is_named_and_nothing_of_what_it_holds(
    authority: Authority, replica: Certificate, tmp_path: Path
) -> None:
    other = authority.issue("other", hosts=["127.0.0.1"])
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("s3cret-content\n")
    locked = with_a_password(replica.key, tmp_path / "locked.key")
    for cert, key, variable, named, said in (
        (tmp_path / "none.pem", replica.key, "TLS_CERT_FILE", tmp_path / "none.pem", "no such file"),
        (replica.cert, tmp_path, "TLS_KEY_FILE", tmp_path, "not a file"),
        (nonsense, replica.key, "TLS_CERT_FILE", nonsense, "PEM certificates"),
        (replica.cert, nonsense, "TLS_KEY_FILE", nonsense, "a PEM private key"),
        (replica.cert, other.key, "TLS_KEY_FILE", other.key, "the key of the certificate in"),
        (replica.cert, locked, "TLS_KEY_FILE", locked, "a key without a password"),
    ):
        with pytest.raises(SettingsError) as caught:
            server_context(settings(cert, key))
        told = str(caught.value)
        assert told.startswith(f"BLACKSTART_{variable}={named}: must be "), told
        assert said in told
        assert "; try: " in told
        assert "s3cret" not in told
    with pytest.raises(SettingsError, match=f"BLACKSTART_PEER_CA_FILE={nonsense}: .*PEM certificates"):
        peer_trust(settings(None, None, nonsense))


def test_peers_are_believed_on_the_given_authoritys_word_alone_and_always_by_name(
    authority: Authority,
) -> None:
    context = peer_trust(settings(None, None, authority.cert)).context
    assert context.cert_store_stats()["x509_ca"] == 1, "others are believed beside it"
    for each in (context, peer_trust(settings(None, None)).context):
        assert each.verify_mode is ssl.CERT_REQUIRED
        assert each.check_hostname


def test_a_replica_whose_certificate_cannot_serve_does_not_start_and_asks_no_database_first(
    authority: Authority, replica: Certificate
) -> None:
    """What `serve` raises so is exit status 2, as for any other setting."""
    other = authority.issue("another", hosts=["127.0.0.1"])
    with pytest.raises(SettingsError, match=r"BLACKSTART_TLS_KEY_FILE=.*: must be the key of") as caught:
        asyncio.run(serve(settings(replica.cert, other.key)))
    assert "PRIVATE KEY" not in str(caught.value)
