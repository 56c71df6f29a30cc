"""Which address a request came from, and how, believing `X-Forwarded-*` only where a trusted proxy wrote it."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_HOPS = 32


def client_address(peer: str | None, forwarded_for: Sequence[str], trusted: Sequence[Network]) -> str:
    """The nearest address that no trusted proxy vouches past.

    `forwarded_for` are the values of the header, in order. The list is read from its end: each proxy appends
    whom it spoke to, so what a client invents stands to the left of the first address we cannot trust. An
    entry that is no address ends the walk at the proxy that passed it on.
    """
    nearest = peer or "unknown"
    chain = [part.strip() for value in forwarded_for for part in value.split(",")][-_HOPS:]
    while _is_trusted(nearest, trusted) and chain:
        claimed = _address(chain.pop())
        if claimed is None:
            break
        nearest = claimed
    return nearest


def client_scheme(
    peer: str | None, scheme: str, forwarded_proto: Sequence[str], trusted: Sequence[Network]
) -> str:
    """`https` where the client's own connection was TLS, at us or at the first of the proxies before us.

    The first entry of `X-Forwarded-Proto` is the client's side. One that a client invented and a proxy passed on
    makes that client's own cookie stricter, and nobody else's.
    """
    if scheme != "https" and _is_trusted(peer or "unknown", trusted) and forwarded_proto:
        return forwarded_proto[0].partition(",")[0].strip().lower()
    return scheme


def _is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    parsed = parsed if mapped is None else mapped
    return any(parsed in network for network in trusted if network.version == parsed.version)


def _address(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text.removeprefix("[").removesuffix("]")))
    except ValueError:
        return None
