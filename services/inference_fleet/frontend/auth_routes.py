"""`/api/auth/*`: registration, login, logout and API keys.

| answer                | registration                                            | login              |
|-----------------------|---------------------------------------------------------|--------------------|
| 201 / 200 with cookie | created, and this is your session                       | welcome (200)      |
| 201 without cookie    | created and waits for an administrator, or the address  |                    |
|                       | is known already: log in, which tells the owner which   |                    |
| 401                   |                                                         | wrong              |
| 403                   |                                                         | waits for approval |

Where accounts wait for approval, nobody learns from registration which addresses are known. Where registration is
`open`, the cookie tells: whoever may use a new account at once has to be given it at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Route

from inference_fleet.auth import COOKIE, Credentials, KeyWanted, Standing
from inference_fleet.frontend import bodies, gate
from inference_fleet.frontend.answers import json_response
from inference_fleet.frontend.errors import ApiError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from inference_fleet.auth import Entry
    from inference_fleet.frontend.replica import Replica


async def register(request: Request) -> Response:
    """`POST /api/auth/register`."""
    replica, wanted = await _credentials(request)
    entry = await replica.accounts.register(wanted)
    if entry.standing is Standing.WELCOME:
        return _with_cookie(request, json_response(_user(entry), 201), entry)
    return json_response(
        {"message": "registration processed; log in, or wait for an administrator's approval"}, 201
    )


async def login(request: Request) -> Response:
    """`POST /api/auth/login`."""
    replica, shown = await _credentials(request)
    entry = await replica.accounts.login(shown)
    if entry.standing is Standing.WELCOME:
        return _with_cookie(request, json_response(_user(entry)), entry)
    if entry.standing is Standing.PENDING:
        raise ApiError("forbidden", "this account waits for approval; try: ask an administrator for it")
    raise ApiError("unauthorized", "the address or the password is wrong; try: both as they were registered")


async def logout(request: Request) -> Response:
    """`POST /api/auth/logout`: ends this session, and says so even when there was none."""
    await gate.replica_of(request).accounts.logout(request.cookies.get(COOKIE, ""))
    response = json_response({"message": "logged out"})
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="lax", secure=gate.is_secure(request))
    return response


async def make_key(request: Request) -> Response:
    """`POST /api/auth/keys`: the only answer that ever shows the key."""
    principal = await gate.require_user(request)
    replica = gate.replica_of(request)
    wanted = await bodies.read_json(
        request, KeyWanted, limit=bodies.SMALL, within_s=replica.settings.timings.body_read_s
    )
    made = await replica.keys.make(principal.user_id, wanted.name)
    return json_response({"id": made.id, "name": made.name, "key": made.key}, 201)


async def list_keys(request: Request) -> Response:
    """`GET /api/auth/keys`: one's own keys, without the keys themselves."""
    principal = await gate.require_user(request)
    return json_response(await gate.replica_of(request).keys.list_of(principal.user_id))


async def delete_key(request: Request) -> Response:
    """`DELETE /api/auth/keys/{id}` (or `?id=`): ends one of one's own keys."""
    principal = await gate.require_user(request)
    key_id = str(request.path_params.get("id") or request.query_params.get("id", ""))
    if not key_id.isprintable() or not await gate.replica_of(request).keys.delete(principal.user_id, key_id):
        raise ApiError(
            "not_found", f"you have no key {key_id[:64]!r}; try: an id that GET /api/auth/keys lists"
        )
    return json_response({"id": key_id, "deleted": True})


async def list_users(request: Request) -> Response:
    """`GET /api/auth/users`: for administrators, who is waiting among them."""
    await gate.require_admin(request)
    return json_response(await gate.replica_of(request).accounts.users())


async def approve_user(request: Request) -> Response:
    """`POST /api/auth/users/{id}/approve`."""
    await gate.require_admin(request)
    user_id = gate.path_id(request, "user")
    if not await gate.replica_of(request).accounts.approve(user_id):
        raise ApiError("not_found", f"there is no user {user_id}")
    return json_response({"id": user_id, "active": True})


async def _credentials(request: Request) -> tuple[Replica, Credentials]:
    gate.limit_attempts(request)
    replica = gate.replica_of(request)
    return replica, await bodies.read_json(
        request, Credentials, limit=bodies.SMALL, within_s=replica.settings.timings.body_read_s
    )


def _user(entry: Entry) -> dict[str, str]:
    assert entry.principal is not None
    return {
        "id": entry.principal.user_id,
        "email": entry.principal.email,
        "name": entry.principal.name,
        "role": entry.principal.role,
    }


def _with_cookie(request: Request, response: Response, entry: Entry) -> Response:
    response.set_cookie(
        COOKIE,
        entry.token,
        max_age=int(gate.replica_of(request).settings.timings.session_ttl_s),
        path="/",
        httponly=True,
        samesite="lax",
        secure=gate.is_secure(request),
    )
    return response


ROUTES = [
    Route("/api/auth/register", register, methods=["POST"]),
    Route("/api/auth/login", login, methods=["POST"]),
    Route("/api/auth/logout", logout, methods=["POST"]),
    Route("/api/auth/keys", make_key, methods=["POST"]),
    Route("/api/auth/keys", list_keys, methods=["GET"]),
    Route("/api/auth/keys", delete_key, methods=["DELETE"]),
    Route("/api/auth/keys/{id}", delete_key, methods=["DELETE"]),
    Route("/api/auth/users", list_users, methods=["GET"]),
    Route("/api/auth/users/{id}/approve", approve_user, methods=["POST"]),
]
