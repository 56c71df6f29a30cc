"""The settings of one frontend replica."""

from __future__ import annotations

import ipaddress
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from inference_fleet.settings.errors import SettingsError
from inference_fleet.settings.reading import Reader, usable_url
from inference_fleet.settings.timings import Timings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class FrontendSettings:
    """One replica's settings, from `BLACKSTART_*` variables.

    | field                | variable             | meaning                                                         |
    |----------------------|----------------------|-----------------------------------------------------------------|
    | `database_url`       | `DATABASE_URL`       | `postgresql://` URL, required                                   |
    | `listen`             | `LISTEN`             | `HOST:PORT`, default `127.0.0.1:8080`                           |
    | `advertise_address`  | `ADVERTISE_ADDRESS`  | None: discover; empty: present but not dialable; else HOST:PORT |
    |                      |                      | as `LISTEN` speaks, or with `https://` or `http://` before it   |
    | `instance_id`        | `INSTANCE_ID`        | default: a new one each start                                   |
    | `cluster_secret`     | `CLUSTER_SECRET`     | shared by replicas; empty: no peer is trusted                   |
    | `registration_token` | `REGISTRATION_TOKEN` | what a worker shows to register; empty: none may                |
    | `auth_hmac_secret`   | `AUTH_HMAC_SECRET`   | keys session rows; empty: made in `data_dir`                    |
    | `auth_registration`  | `AUTH_REGISTRATION`  | `approval` or `open`                                            |
    | `auto_approve_nodes` | `AUTO_APPROVE_NODES` | default true                                                    |
    | `data_dir`           | `DATA_DIR`           | default `./data`                                                |
    | `expose_route`       | `EXPOSE_ROUTE`       | adds `X-Blackstart-Node` and `-Route` to answers                |
    | `trusted_proxies`    | `TRUSTED_PROXIES`    | networks whose `X-Forwarded-For` and `-Proto` are believed      |
    | `tls_cert_file`      | `TLS_CERT_FILE`      | PEM, the chain after it: `LISTEN` speaks TLS; with the key only |
    | `tls_key_file`       | `TLS_KEY_FILE`       | PEM, without a password                                         |
    | `peer_ca_file`       | `PEER_CA_FILE`       | PEM: who signs for peers; None: the system's authorities        |
    | `peer_server_name`   | `PEER_SERVER_NAME`   | the name peers' certificates carry; empty: the address dialled  |
    """

    database_url: str = field(repr=False)
    listen: tuple[str, int]
    advertise_address: str | None
    instance_id: str
    cluster_secret: str = field(repr=False)
    registration_token: str = field(repr=False)
    auth_hmac_secret: str = field(repr=False)
    auth_registration: str
    auto_approve_nodes: bool
    data_dir: Path
    expose_route: bool
    trusted_proxies: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]
    tls_cert_file: Path | None
    tls_key_file: Path | None
    peer_ca_file: Path | None
    peer_server_name: str
    timings: Timings

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        """Read and check everything at once; the first wrong value raises `SettingsError`."""
        read = Reader(environ)
        _no_serving_node(read)
        cert, key = _certificate(read)
        return cls(
            database_url=_database_url(read),
            listen=read.address("LISTEN", "127.0.0.1:8080"),
            advertise_address=_advertise_address(read, scheme="http" if cert is None else "https"),
            instance_id=read.name("INSTANCE_ID", f"replica-{uuid.uuid4().hex[:12]}"),
            cluster_secret=read.text("CLUSTER_SECRET"),
            registration_token=read.text("REGISTRATION_TOKEN"),
            auth_hmac_secret=read.text("AUTH_HMAC_SECRET"),
            auth_registration=read.choice("AUTH_REGISTRATION", ("approval", "open"), "approval"),
            auto_approve_nodes=read.flag("AUTO_APPROVE_NODES", default=True),
            data_dir=read.path("DATA_DIR", "data"),
            expose_route=read.flag("EXPOSE_ROUTE", default=False),
            trusted_proxies=_networks(read),
            tls_cert_file=cert,
            tls_key_file=key,
            peer_ca_file=read.file("PEER_CA_FILE"),
            peer_server_name=_server_name(read),
            timings=Timings.from_environ(environ),
        )


def _no_serving_node(read: Reader) -> None:
    """A frontend that runs models itself is not there yet; whoever asks for one must not get another in silence."""
    for name in ("WEB_PORT", "MODELS_DIR"):
        if value := read.text(name):
            raise SettingsError(
                read.variable(name),
                value,
                "unset for a frontend: there are no serving nodes yet, a frontend runs no models itself",
                remedy=f"unset {read.variable(name)}, and start a worker with BLACKSTART_MODELS_DIR beside it",
            )


def _database_url(read: Reader) -> str:
    url = read.required("DATABASE_URL", "a postgresql:// URL the replicas share")
    scheme, _, rest = url.partition("://")
    hosts = (
        re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2].split(",")
    )  # several, as libpq reads it
    if scheme not in {"postgresql", "postgres"} or not all(usable_url(f"//{host}") for host in hosts):
        raise SettingsError(
            read.variable("DATABASE_URL"),
            f"{scheme}://***" if rest and scheme.isalnum() else "***",
            "a postgresql:// URL with a host and, where one is named, a port from 1 to 65535",
            remedy="postgresql://USER:PASSWORD@HOST:PORT/NAME",
        )
    return url


def _advertise_address(read: Reader, *, scheme: str) -> str | None:
    """As it stands in the instance's row: `HOST:PORT` is dialled plain, `https://HOST:PORT` over TLS."""
    value = read.raw("ADVERTISE_ADDRESS")
    if value is None or not value.strip():
        return None if value is None else ""
    named, _, _ = value.strip().rpartition("://")
    bare = value.strip().removeprefix(f"{named}://") if named in {"http", "https"} else value
    try:
        host, port = Reader({read.variable("ADVERTISE_ADDRESS"): bare}).address("ADVERTISE_ADDRESS", "")
    except SettingsError:
        host, port = "", 0
    if port == 0 or "/" in host:
        raise SettingsError(
            read.variable("ADVERTISE_ADDRESS"),
            value,
            "HOST:PORT with a port from 1 to 65535, https:// or http:// before it or neither",
        )
    return announced(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", scheme=named or scheme)


def announced(address: str, *, scheme: str) -> str:
    """How an instance's row says that its address speaks TLS; a plain one stays as it always was."""
    return f"https://{address}" if scheme == "https" else address


def _certificate(read: Reader) -> tuple[Path, Path] | tuple[None, None]:
    """Both files or neither: half of them is a replica that would serve in the open what was meant to be secret."""
    cert, key = read.file("TLS_CERT_FILE"), read.file("TLS_KEY_FILE")
    if cert is not None and key is not None:
        return cert, key
    if cert is None and key is None:
        return None, None
    missing, given = ("TLS_KEY_FILE", "TLS_CERT_FILE") if key is None else ("TLS_CERT_FILE", "TLS_KEY_FILE")
    raise SettingsError(
        read.variable(missing),
        "",
        f"set where {read.variable(given)} is: TLS takes a certificate and its key",
        remedy=f"set both, or unset {read.variable(given)} for a replica without TLS",
    )


def _server_name(read: Reader) -> str:
    value = read.text("PEER_SERVER_NAME")
    if value and not _HOST_NAME.fullmatch(value):
        raise SettingsError(
            read.variable("PEER_SERVER_NAME"), repr(value[:64]), "a host name as certificates carry it"
        )
    return value


def _networks(read: Reader) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    networks = []
    for part in read.text("TRUSTED_PROXIES").split(","):
        if not part.strip():
            continue
        try:
            networks.append(ipaddress.ip_network(part.strip()))
        except ValueError:
            raise SettingsError(
                read.variable("TRUSTED_PROXIES"),
                part.strip(),
                "addresses or networks such as 10.0.0.0/8, comma-separated",
            ) from None
    return tuple(networks)
