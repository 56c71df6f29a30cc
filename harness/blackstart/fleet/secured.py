"""A fleet that speaks TLS on every connection between its processes: one authority of its own, one certificate for all replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackstart.core.topology import HOST
from blackstart.fleet.http import believe
from blackstart.net.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


class FleetTls:
    """What each kind of process is told; the harness itself believes the authority from here on."""

    def __init__(self, folder: Path) -> None:
        """The files are throw-away ones, made in `folder`."""
        self.authority = Authority(folder)
        self._shown = self.authority.issue("replica", hosts=[HOST])
        believe(self.authority.cert)

    @property
    def frontend_env(self) -> Mapping[str, str]:
        """A replica shows the certificate, and believes peers that show one of the same authority."""
        return {
            "BLACKSTART_TLS_CERT_FILE": str(self._shown.cert),
            "BLACKSTART_TLS_KEY_FILE": str(self._shown.key),
            "BLACKSTART_PEER_CA_FILE": str(self.authority.cert),
        }

    @property
    def worker_env(self) -> Mapping[str, str]:
        """A worker believes who OpenSSL is told to believe."""
        return {"SSL_CERT_FILE": str(self.authority.cert)}
