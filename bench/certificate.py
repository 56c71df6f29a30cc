"""A certificate of our own for the loopback, made for one run and kept in its folder."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blackstart.core.commands import SetUpFailed

if TYPE_CHECKING:
    from pathlib import Path

_DAYS: Final = "2"
_WITHIN_S: Final = 30


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """PEM files; the certificate is its own authority."""

    cert: Path
    key: Path


def make_certificate(folder: Path) -> Certificate:
    """A new P-256 key and a certificate for 127.0.0.1, by `openssl`."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Certificate(cert=folder / "loopback.pem", key=folder / "loopback.key")
    if shutil.which("openssl") is None:
        raise SetUpFailed(
            "openssl",
            "",
            "is not on PATH, and it makes the certificate",
            remedy="install the package openssl",
        )
    line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    line += [
        "-days",
        _DAYS,
        "-subj",
        "/CN=blackstart bench",
        "-keyout",
        str(made.key),
        "-out",
        str(made.cert),
    ]
    for extension in (
        "subjectAltName=IP:127.0.0.1",
        "basicConstraints=critical,CA:TRUE",
        "keyUsage=critical,digitalSignature,keyCertSign",
    ):
        line += ["-addext", extension]
    ended = subprocess.run(line, capture_output=True, text=True, check=False, timeout=_WITHIN_S)
    if ended.returncode != 0:
        raise SetUpFailed(
            "openssl", ended.returncode, ended.stderr.strip()[-300:], remedy="openssl 1.1.1 or newer"
        )
    return made
