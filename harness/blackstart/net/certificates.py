"""Certificates for one run: an authority of its own and what it signs, made by `openssl` and kept in a folder."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_WITHIN_S: Final = 30
_DAYS: Final = 2


class NoCertificate(RuntimeError):
    """`openssl` is not there, or would not make what was asked of it."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Two PEM files; the key has no password."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates. Whoever trusts its `cert` believes what it signed, and nothing else."""

    def __init__(self, folder: Path, *, name: str = "blackstart") -> None:
        """Makes a new one in `folder`, which may be new as well."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._own = Certificate(cert=folder / "authority.pem", key=folder / "authority.key")
        extensions = ("basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign")
        added = [part for extension in extensions for part in ("-addext", extension)]
        made = ["-keyout", str(self._own.key), "-out", str(self._own.cert)]
        subject = ["-subj", f"/CN={name} authority", "-days", str(_DAYS)]
        _openssl("req", "-x509", *_KEY, *subject, *made, *added)

    @property
    def cert(self) -> Path:
        """What whoever is to believe it has to be told."""
        return self._own.cert

    def issue(self, name: str, *, hosts: Sequence[str], days: int = _DAYS) -> Certificate:
        """A certificate for host names and addresses; negative `days` make one that has expired already."""
        made = Certificate(cert=self._folder / f"{name}.pem", key=self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        names = ",".join(f"{'IP' if _is_address(host) else 'DNS'}:{host}" for host in hosts)
        extensions.write_text(f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n")
        _openssl("req", "-new", *_KEY, "-subj", f"/CN={name}", "-keyout", str(made.key), "-out", str(request))
        signer = ["-CA", str(self._own.cert), "-CAkey", str(self._own.key), "-CAcreateserial"]
        asked = ["-in", str(request), "-extfile", str(extensions), "-days", str(days), "-out", str(made.cert)]
        _openssl("x509", "-req", *asked, *signer)
        return made


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _openssl(*arguments: str) -> None:
    if shutil.which("openssl") is None:
        raise NoCertificate(
            "openssl: is not on PATH, and it makes the certificates; try: install the package openssl"
        )
    ended = subprocess.run(
        ["openssl", *arguments], capture_output=True, text=True, check=False, timeout=_WITHIN_S
    )
    if ended.returncode != 0:
        raise NoCertificate(
            f"openssl {arguments[0]}={ended.returncode}: {' '.join(ended.stderr.split())[-300:]}; try: openssl 1.1.1 or newer"
        )
