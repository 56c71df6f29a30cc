"""What TLS takes, read once at the start: this replica's own certificate, and whom it believes to be a peer.

Neither has a form that verifies less: where a file cannot serve, the replica does not start.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from inference_fleet.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

    from inference_fleet.settings import FrontendSettings

_CERT = "BLACKSTART_TLS_CERT_FILE"
_KEY = "BLACKSTART_TLS_KEY_FILE"
_PEER_CA = "BLACKSTART_PEER_CA_FILE"


class _HasPassword(Exception):
    """OpenSSL asked for one."""


@dataclass(frozen=True, kw_only=True)
class PeerTrust:
    """Which certificate a peer may show: one of the given authorities', else of the system's, on the name expected.

    An empty `server_name` expects the host of the address that is dialled.
    """

    given: ssl.SSLContext | None = None
    server_name: str = ""

    @cached_property
    def context(self) -> ssl.SSLContext:
        """Reading the system's authorities takes a while, so that waits until a peer speaks TLS."""
        return self.given or ssl.create_default_context()


def server_context(settings: FrontendSettings) -> ssl.SSLContext | None:
    """What the listener shows, or None for one without TLS; `SettingsError` names a file that cannot serve."""
    cert, key = settings.tls_cert_file, settings.tls_key_file
    if cert is None or key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    _check_certificates(_CERT, cert)
    _check_readable(_KEY, key)
    try:
        context.load_cert_chain(cert, key, password=_asked_for_a_password)
    except _HasPassword:
        raise SettingsError(
            _KEY,
            key,
            "a key without a password",
            remedy="openssl pkey -in KEY -out PLAIN-KEY, readable by this process alone",
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingsError(
                _KEY, key, f"the key of the certificate in {cert}", remedy="set both to files made together"
            ) from None
        raise SettingsError(
            _KEY,
            key,
            f"a PEM private key that goes with the certificate in {cert} ({_reason(error)})",
            remedy="a PEM file that begins with BEGIN PRIVATE KEY",
        ) from None
    return context


def peer_trust(settings: FrontendSettings) -> PeerTrust:
    """Whom this replica believes when it dials a peer over TLS."""
    if settings.peer_ca_file is None:
        return PeerTrust(server_name=settings.peer_server_name)
    _check_certificates(_PEER_CA, settings.peer_ca_file)
    return PeerTrust(
        given=ssl.create_default_context(cafile=settings.peer_ca_file), server_name=settings.peer_server_name
    )


def _asked_for_a_password() -> str:
    raise _HasPassword


def _check_certificates(variable: str, path: Path) -> None:
    _check_readable(variable, path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError as error:
        raise SettingsError(
            variable,
            path,
            f"a file of PEM certificates ({_reason(error)})",
            remedy="a PEM file that begins with BEGIN CERTIFICATE",
        ) from None


def _check_readable(variable: str, path: Path) -> None:
    wrong = "no such file"
    try:
        if path.is_file():
            with path.open("rb"):
                return
        elif path.exists():
            wrong = "not a file"
    except OSError as error:
        wrong = str(error.strerror)
    raise SettingsError(
        variable,
        path,
        f"a file this process can read ({wrong})",
        remedy="name an existing PEM file that this process's user may read",
    )


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's own words, which never quote what it read."""
    return (error.reason or "unreadable").replace("_", " ").lower()
