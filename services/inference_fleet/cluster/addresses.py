"""The address peers dial a replica at: the source of its route to the database, or an error, never a guess.

The database is the one place every replica reaches, so the address that route leaves from is one the others can
usually dial. On the database's own host that route is loopback, and a peer that dialled it would reach itself.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from inference_fleet.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

_VARIABLE = "BLACKSTART_ADVERTISE_ADDRESS"


class UndialableAddress(SettingsError):
    """No address could be found that another replica can dial; the text names the remedy."""

    def __init__(self, found: str) -> None:
        """`found` says what was found instead."""
        super().__init__(
            _VARIABLE,
            "(unset)",
            f"set to a HOST:PORT that the other replicas can dial, or to nothing for a replica without peers: {found}",
        )


def discover_address(
    database_url: str, port: int, *, source_of: Callable[[str, int], str] | None = None
) -> str:
    """`HOST:PORT` for the instance row: where the route to the database leaves from, and the listening port."""
    try:
        given = conninfo_to_dict(database_url)
    except ProgrammingError:
        raise UndialableAddress("the database URL cannot be read") from None
    host = str(given.get("hostaddr") or given.get("host") or "")
    if not host or host.startswith(("/", "@")) or "," in host:
        raise UndialableAddress("the database URL names no single host, so no route can be asked for")
    try:
        source = (source_of or route_source)(host, int(given.get("port") or 5432))
    except OSError as error:
        raise UndialableAddress(f"there is no route to the database host {host}: {error}") from error
    return dialable(source, port)


def dialable(source: str, port: int) -> str:
    """`source` and `port` as one address, if a peer could dial it."""
    if not 1 <= port <= 65535:
        raise UndialableAddress(f"port {port} is not from 1 to 65535")
    try:
        address = ipaddress.ip_address(source)
    except ValueError:
        raise UndialableAddress(f"{source!r} is not an IP address") from None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    plain = mapped or address
    for wrong, name in (
        (plain.is_unspecified, "unspecified"),
        (plain.is_loopback, "loopback"),
        ("%" in source, "bound to one interface of this host (zoned)"),
        (plain.is_link_local, "link-local"),
    ):
        if wrong:
            raise UndialableAddress(f"the route to the database leaves from {source}, which is {name}")
    return f"[{plain}]:{port}" if plain.version == 6 else f"{plain}:{port}"


def route_source(host: str, port: int) -> str:
    """The local address a packet to `host` would leave from. Sends nothing; a name is looked up (blocking)."""
    family, kind, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        return str(probe.getsockname()[0])
