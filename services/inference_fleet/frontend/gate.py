"""What each path demands of its caller, and the refusals in front of it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from inference_fleet.auth import COOKIE, bearer, client_address, client_scheme, same_secret
from inference_fleet.frontend.errors import ApiError, retry_after

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from inference_fleet.auth import Principal
    from inference_fleet.frontend.replica import Replica

_ID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")
_UNAUTHORIZED = {"WWW-Authenticate": "Bearer"}


def replica_of(connection: HTTPConnection) -> Replica:
    """The replica that serves a connection."""
    replica: Replica = connection.app.state.replica
    return replica


def path_id(connection: HTTPConnection, what: str = "node") -> str:
    """The `{id}` of a path; whatever cannot be an id is a 400, before anybody looks it up."""
    value = str(connection.path_params["id"])
    if not _ID.fullmatch(value):
        raise ApiError(
            "invalid",
            f"{value[:64]!r} cannot be the id of a {what}: 1 to 128 letters, digits, dots, dashes, underscores"
            f"; try: the id as the list of {what}s has it",
        )
    return value


def authorization(connection: HTTPConnection) -> str:
    """The bearer token shown, or empty."""
    return bearer(connection.headers.get("authorization"))


async def principal_of(connection: HTTPConnection) -> Principal | None:
    """Who is asking, by API key or session cookie; a key that is shown and wrong is not saved by a cookie."""
    replica = replica_of(connection)
    key = authorization(connection)
    if key:
        return await replica.keys.owner(key)
    return await replica.accounts.session(connection.cookies.get(COOKIE, ""))


async def require_user(connection: HTTPConnection) -> Principal:
    """Any active user."""
    principal = await principal_of(connection)
    if principal is None:
        raise ApiError(
            "unauthorized",
            "authentication required: no valid API key or session was shown"
            "; try: an API key as bearer, or log in for a session cookie",
            headers=_UNAUTHORIZED,
        )
    return principal


async def require_fleet_reader(connection: HTTPConnection) -> Principal:
    """A session, or an administrator's key."""
    principal = await require_user(connection)
    if not principal.may_read_fleet:
        raise ApiError(
            "forbidden", "this key is not an administrator's; try: log in, or an administrator's key"
        )
    return principal


async def require_admin(connection: HTTPConnection) -> Principal:
    """An administrator."""
    principal = await require_user(connection)
    if not principal.is_admin:
        raise ApiError("forbidden", "this account is not an administrator's; try: ask one of them")
    return principal


def require_registration_token(connection: HTTPConnection) -> None:
    """The fleet's registration token; when none is configured, nobody has it."""
    configured = replica_of(connection).settings.registration_token
    if not same_secret(authorization(connection), configured):
        why = (
            "the bearer shown is not this fleet's registration token; try: BLACKSTART_REGISTRATION_TOKEN as the "
            "frontends have it"
            if configured
            else "this replica has no registration token, so nobody may register; try: set "
            "BLACKSTART_REGISTRATION_TOKEN on every replica"
        )
        raise ApiError("unauthorized", why, headers=_UNAUTHORIZED)


async def require_node(connection: HTTPConnection) -> tuple[str, int]:
    """The node of the path, shown by its own credential; gives its id and the credential's version.

    An unknown node and a wrong credential are one answer: a worker may act only on its own node, and nobody
    learns from here which nodes exist.
    """
    shown = authorization(connection)
    if not shown:
        raise ApiError(
            "unauthorized",
            "no credential of the node was shown; try: the node's own as bearer",
            headers=_UNAUTHORIZED,
        )
    node_id = path_id(connection)
    version = await replica_of(connection).roster.check_credential(node_id, shown)
    if version is None:
        raise ApiError(
            "unauthorized",
            "the bearer shown is not the node's credential; try: the one it was last registered with",
            headers=_UNAUTHORIZED,
        )
    return node_id, version


def limit_attempts(connection: HTTPConnection) -> None:
    """A few attempts a window for each client address, registrations and logins together."""
    replica = replica_of(connection)
    client = client_of(connection)
    wait_s = replica.limiter.retry_after(client, now=time.monotonic())
    if wait_s is not None:
        raise ApiError(
            "rate_limited",
            f"too many attempts from {client}; try: again in {wait_s:.0f} s",
            headers=retry_after(wait_s),
        )


def client_of(connection: HTTPConnection) -> str:
    """The client's address, past trusted proxies only."""
    return client_address(
        connection.client.host if connection.client else None,
        connection.headers.getlist("x-forwarded-for"),
        replica_of(connection).settings.trusted_proxies,
    )


def is_secure(connection: HTTPConnection) -> bool:
    """Whether the client speaks TLS, to us or to a trusted proxy."""
    scheme = client_scheme(
        connection.client.host if connection.client else None,
        connection.url.scheme,
        connection.headers.getlist("x-forwarded-proto"),
        replica_of(connection).settings.trusted_proxies,
    )
    return scheme == "https"
