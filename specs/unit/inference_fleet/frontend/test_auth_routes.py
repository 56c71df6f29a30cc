"""`/api/auth/*` over HTTP: what each answer means, the cookie, and the limiter in front."""

from __future__ import annotations

import asyncio
import ipaddress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from specs.unit.inference_fleet.route.piped import TIMINGS, until

from blackstart.fleet.http import error_code, error_message
from inference_fleet.auth import Accounts
from inference_fleet.store import DatabaseUnavailable

from .served import PASSWORD, served

if TYPE_CHECKING:
    from pathlib import Path

    import httpx2

ADMIN = {"email": "admin@example.org", "password": PASSWORD}


@pytest.mark.holds("B-150", "B-155")
def test_registration_answers_201_twice_and_only_the_cookie_says_which(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            created = await front.http.post("/api/auth/register", json=ADMIN)
            known = await front.http.post("/api/auth/register", json=ADMIN)
            assert (created.status_code, known.status_code) == (201, 201)
            assert "session" in created.cookies
            assert "session" not in known.cookies, "an address that is known already gets no session"
            flags = {part.strip().lower() for part in created.headers["set-cookie"].split(";")[1:]}
            assert {"httponly", "samesite=lax", "path=/"} <= flags

            login = await front.http.post("/api/auth/login", json=ADMIN)
            assert (login.status_code, login.json()["role"]) == (200, "admin")
            assert "session" in login.cookies
            waiting = await front.http.post("/api/auth/register", json={**ADMIN, "email": "bob@example.org"})
            again = await front.http.post("/api/auth/register", json={**ADMIN, "email": "bob@example.org"})
            assert "session" not in waiting.cookies
            assert [
                (answer.status_code, answer.json(), set(answer.headers)) for answer in (waiting, again)
            ] == [(known.status_code, known.json(), set(known.headers))] * 2, (
                "a known address is told from a new one"
            )

    asyncio.run(story())


@pytest.mark.parametrize(
    ("trusted", "proto", "secure"),
    [
        ("127.0.0.0/8", "https", True),
        ("127.0.0.0/8", "HTTPS, http", True),
        ("127.0.0.0/8", "http", False),
        ("127.0.0.0/8", "", False),
        ("10.0.0.0/8", "https", False),
    ],
)
def test_a_session_cookie_is_secure_behind_a_trusted_proxy_that_speaks_tls(
    url: str,
    tmp_path: Path,
    trusted: str,
    proto: str,
    secure: bool,  # noqa: FBT001 -- parametrised
) -> None:
    async def story() -> None:
        async with served(url, tmp_path, trusted_proxies=(ipaddress.ip_network(trusted),)) as front:
            headers = {"X-Forwarded-Proto": proto} if proto else {}
            for path in ("/api/auth/register", "/api/auth/login", "/api/auth/logout"):
                answer = await front.http.post(path, json=ADMIN, headers=headers)
                flags = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
                assert ("secure" in flags) is secure, f"{path}: the cookie's flags are {flags}"

    asyncio.run(story())


@pytest.mark.holds("B-152", "B-151")
def test_a_session_made_at_one_replica_opens_every_replica_with_the_same_secret(
    url: str, tmp_path: Path
) -> None:
    async def story() -> None:
        async with (
            served(url, tmp_path / "a") as one,
            served(url, tmp_path / "b", instance_id="b") as two,
            served(url, tmp_path / "c", instance_id="c", auth_hmac_secret="") as other,
        ):
            await one.admin()
            cookies = {"Cookie": f"session={one.http.cookies['session']}"}
            assert (await two.http.get("/api/nodes", headers=cookies)).status_code == 200
            assert (await other.http.get("/api/nodes", headers=cookies)).status_code == 401

    asyncio.run(story())


@pytest.mark.holds("B-152")
def test_attempts_are_limited_for_each_address_and_a_refusal_says_when(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        loopback = (ipaddress.ip_network("127.0.0.0/8"),)
        async with served(url, tmp_path, trusted_proxies=loopback) as front:

            async def attempt(client: str, path: str) -> httpx2.Response:
                return await front.http.post(path, json=ADMIN, headers={"X-Forwarded-For": client})

            paths = ["/api/auth/register", "/api/auth/login"] * 3
            statuses = [(await attempt("198.51.100.1", path)).status_code for path in paths]
            assert statuses == [201, 200, 201, 200, 201, 429], "five a window, both routes together"
            refused = await attempt("198.51.100.1", "/api/auth/login")
            assert refused.json()["error"]["code"] == "rate_limited"
            assert "from 198.51.100.1; try: again in " in refused.json()["error"]["message"]
            assert 1 <= int(refused.headers["retry-after"]) <= front.replica.settings.timings.auth_window_s
            assert (await attempt("198.51.100.2", "/api/auth/login")).status_code == 200

    asyncio.run(story())


def test_without_trusted_proxies_a_forwarded_address_is_only_a_claim(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            statuses = [
                (
                    await front.http.post(
                        "/api/auth/login", json=ADMIN, headers={"X-Forwarded-For": f"198.51.100.{number}"}
                    )
                ).status_code
                for number in range(6)
            ]
            assert statuses == [401] * 5 + [429]

    asyncio.run(story())


def test_a_key_is_shown_once_listed_without_itself_and_ended(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            assert (await front.http.post("/api/auth/keys", json={"name": "k"})).status_code == 401
            await front.admin()
            made = await front.http.post("/api/auth/keys", json={"name": "k"})
            assert made.status_code == 201
            assert set(made.json()) == {"id", "name", "key"}
            headers = {"Authorization": f"Bearer {made.json()['key']}"}
            front.http.cookies.clear()
            assert (await front.http.get("/v1/models", headers=headers)).status_code == 200
            (listed,) = (await front.http.get("/api/auth/keys", headers=headers)).json()
            assert set(listed) == {"id", "name", "created_at"}
            gone = await front.http.delete(f"/api/auth/keys/{listed['id']}", headers=headers)
            assert gone.status_code == 200
            assert (await front.http.get("/v1/models", headers=headers)).status_code == 401

    asyncio.run(story())


NO_KEY_NAMES: dict[str, object] = {
    "empty": "",
    "129-characters": "n" * 129,
    "300-characters": "n" * 300,
    "nul": "a\0b",
    "two-lines": "a\nb",
    "line-feed-at-its-end": "a\n",
    "right-to-left-override": "a\u202eb",
    "left-to-right-isolate": "\u2066a",
    "right-to-left-mark": "a\u200f",
    "delete": "\x7f",
    "number": 7,
    "null": None,
}


@pytest.mark.parametrize("name", NO_KEY_NAMES.values(), ids=NO_KEY_NAMES)
def test_a_key_whose_name_cannot_be_kept_or_shown_is_refused_by_name_and_not_made(
    url: str, tmp_path: Path, name: object
) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            await front.admin()
            refused = await front.http.post("/api/auth/keys", json={"name": name})
            assert (refused.status_code, error_code(refused.json())) == (400, "invalid")
            message = error_message(refused.json())
            assert "`$.name`" in message
            assert "; try: " in message, f"no remedy: {message}"
            assert (await front.http.get("/api/auth/keys")).json() == []
            for good in ("n" * 128, "clé 7", "a/b"):  # the control
                made = await front.http.post("/api/auth/keys", json={"name": good})
                assert (made.status_code, made.json()["name"]) == (201, good)
                key = {"Authorization": f"Bearer {made.json()['key']}"}
                listed = (await front.http.get("/api/auth/keys", headers=key)).json()
                assert listed[-1]["name"] == good

    asyncio.run(story())


def test_a_wrong_key_is_not_saved_by_a_good_cookie(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path) as front:
            await front.admin()
            assert (await front.http.get("/v1/models")).status_code == 200
            wrong = await front.http.get("/v1/models", headers={"Authorization": "Bearer bsk_wrong"})
            assert wrong.status_code == 401
            assert "bsk_wrong" not in wrong.text, "what was shown is told back"

    asyncio.run(story())


def test_an_administrator_lets_waiting_users_in_and_a_user_may_not(url: str, tmp_path: Path) -> None:
    async def story() -> None:
        async with served(url, tmp_path, timings=_unlimited()) as front:
            await front.admin()
            bob = {**ADMIN, "email": "bob@example.org"}
            await front.http.post("/api/auth/register", json=bob)
            assert (await front.http.post("/api/auth/login", json=bob)).status_code == 403
            user = next(u for u in (await front.http.get("/api/auth/users")).json() if not u["active"])
            assert (await front.http.post(f"/api/auth/users/{user['id']}/approve")).status_code == 200
            front.http.cookies.clear()
            assert (await front.http.post("/api/auth/login", json=bob)).status_code == 200
            assert (await front.http.get("/api/auth/users")).json()["error"]["code"] == "forbidden"
            assert (await front.http.get("/api/nodes")).status_code == 200, "a session reads the fleet"
            key = (await front.http.post("/api/auth/keys", json={"name": "k"})).json()["key"]
            refused = await front.http.get("/api/nodes", headers={"Authorization": f"Bearer {key}"})
            assert refused.json()["error"]["code"] == "forbidden", "a plain user's key does not"
            await front.http.post("/api/auth/logout")
            assert (await front.http.get("/api/nodes")).status_code == 401

    asyncio.run(story())


def _unlimited() -> object:
    from dataclasses import replace  # noqa: PLC0415 -- one story's own tempo

    from specs.unit.inference_fleet.route.piped import TIMINGS  # noqa: PLC0415 -- as above

    return replace(TIMINGS, auth_window_s=TIMINGS.reconnect_backoff_min_s)


@pytest.mark.parametrize("path", ["/api/auth/register", "/api/auth/login"])
def test_small_bodies_only_and_nonsense_is_named(url: str, tmp_path: Path, path: str) -> None:
    async def story() -> None:
        async with served(url, tmp_path, timings=_unlimited()) as front:
            for content, status in (
                (b"x" * (64 * 1024), 400),
                (b"x" * (64 * 1024 + 1), 413),
                (b"[" * 10_000, 400),
                (b'{"email": "a@b.c"}', 400),
                (b'{"email": "a@b.c", "password": "correct horse", "name": "a\\u0000"}', 400),
            ):
                reply = await front.http.post(path, content=content)
                while reply.status_code == 429:
                    reply = await front.http.post(path, content=content)
                assert reply.status_code == status
                assert set(reply.json()["error"]) == {"message", "type", "code"}

    asyncio.run(story())


def test_a_replica_forgets_expired_sessions_by_itself_and_goes_on_after_an_outage(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget, rounds = Accounts.forget_expired, [0]

    async def flaky(accounts: Accounts) -> int:
        rounds[0] += 1
        if rounds[0] == 1:
            raise DatabaseUnavailable("not in this round")
        return await forget(accounts)

    monkeypatch.setattr(Accounts, "forget_expired", flaky)
    often = replace(TIMINGS, session_rotate_s=TIMINGS.instance_beat_s)

    async def story() -> None:
        async with served(url, tmp_path, timings=often) as front:
            await front.admin()
            db = front.replica.db
            made = await db.change(
                "INSERT INTO sessions (id, user_id, created_at, expires_at)"
                " SELECT 'expired', id, clock_timestamp(), clock_timestamp() FROM users"
            )
            assert made == 1

            async def forgotten() -> bool:
                return await db.row("SELECT 1 AS one FROM sessions WHERE id = 'expired'") is None

            await until(forgotten, "an expired session stays in the database")
            assert rounds[0] > 1, "the outage came first"
            assert not front.replica.failed.done()
            assert (await front.http.get("/api/nodes")).status_code == 200, "the control: a live one stays"

    asyncio.run(story())
