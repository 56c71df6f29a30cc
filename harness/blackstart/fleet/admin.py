"""The fleet's one administrator: minted once at the first replica, its session and key shared by every probe."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blackstart.fleet.http import UnexpectedAnswer, client_of, json_of

if TYPE_CHECKING:
    from blackstart.fleet.services import Secrets

EMAIL = "admin@blackstart.invalid"
COOKIE = "session"


@dataclass(frozen=True, kw_only=True)
class Admin:
    """A session cookie's bare value and an API key; both are accepted by every replica."""

    cookie: str = field(repr=False)
    api_key: str = field(repr=False)

    @property
    def session(self) -> dict[str, str]:
        """Headers of a request made with the session."""
        return {"Cookie": f"{COOKIE}={self.cookie}"}

    @property
    def bearer(self) -> dict[str, str]:
        """Headers of a request made with the API key."""
        return {"Authorization": f"Bearer {self.api_key}"}


def mint(base_url: str, secrets: Secrets, *, within: float) -> Admin:
    """Register the first user (who is the administrator), log in, and make one key."""
    who = {"email": EMAIL, "password": secrets.admin_password, "name": "blackstart"}
    with client_of(base_url, within=within) as client:
        json_of(client.post("/api/auth/register", json=who), 200, 201)
        login = client.post("/api/auth/login", json=who)
        json_of(login, 200)
        cookie = login.cookies.get(COOKIE)
        if not cookie:
            raise UnexpectedAnswer(
                f"POST {base_url}/api/auth/login", login.status_code, login.text, "a session cookie"
            )
        client.cookies.clear()
        key = json_of(
            client.post(
                "/api/auth/keys", json={"name": "blackstart"}, headers={"Cookie": f"{COOKIE}={cookie}"}
            ),
            201,
        )
    return Admin(cookie=cookie, api_key=str(key["key"]))
