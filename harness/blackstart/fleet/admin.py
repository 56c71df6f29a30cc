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
    """Register the first user (who is the administrator and gets a session at once), and make one key."""
    who = {"email": EMAIL, "password": secrets.admin_password, "name": "blackstart"}
    with client_of(base_url, within=within) as client:
        answer = client.post("/api/auth/register", json=who)
        json_of(answer, 200, 201)
        cookie = answer.cookies.get(COOKIE)
        if not cookie:  # known already, by somebody who was not heard out
            answer = client.post("/api/auth/login", json=who)
            json_of(answer, 200)
            cookie = answer.cookies.get(COOKIE)
        if not cookie:
            raise UnexpectedAnswer(f"POST {answer.url}", answer.status_code, answer.text, "a session cookie")
        client.cookies.clear()
        key = json_of(
            client.post(
                "/api/auth/keys", json={"name": "blackstart"}, headers={"Cookie": f"{COOKIE}={cookie}"}
            ),
            201,
        )
    return Admin(cookie=cookie, api_key=str(key["key"]))
