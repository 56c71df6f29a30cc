"""Users and sessions on a real database."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest

from inference_fleet.auth import Accounts, Credentials, Passwords, Standing, Via, keyed_hash

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage

SECRET = b"hmac-secret"


def accounts(
    stage: Stage, *, secret: bytes = SECRET, registration: str = "approval", ttl_s: float = 60.0
) -> Accounts:
    return Accounts(
        stage.database, secret=secret, passwords=Passwords(), registration=registration, session_ttl_s=ttl_s
    )


def person(email: str = "ada@example.org", password: str = "correct horse") -> Credentials:
    return Credentials(email=email, password=password)


def test_the_first_user_is_the_administrator_and_active_at_once(play: Play) -> None:
    async def story(stage: Stage) -> None:
        entry = await accounts(stage).register(person())
        assert entry.standing is Standing.WELCOME
        assert entry.principal is not None
        assert entry.principal.is_admin
        assert await accounts(stage).session(entry.token) == entry.principal

    play(story)


def test_first_users_that_register_at_once_make_one_administrator(play: Play) -> None:
    async def story(stage: Stage) -> None:
        one = accounts(stage, registration="open")
        await asyncio.gather(*(one.register(person(f"user{number}@example.org")) for number in range(4)))
        roles = sorted(user["role"] for user in await one.users())
        assert roles == ["admin", "user", "user", "user"]

    play(story)


@pytest.mark.holds("B-150")
def test_an_address_that_is_known_already_makes_nobody_and_gives_no_session(play: Play) -> None:
    async def story(stage: Stage) -> None:
        one = accounts(stage)
        await one.register(person())
        again = await one.register(person(" ADA@example.org ", "another horse"))
        assert (again.standing, again.token) == (Standing.EXISTS, "")
        assert len(await one.users()) == 1
        assert (await one.login(person())).standing is Standing.WELCOME, "the first password still counts"

    play(story)


def test_later_users_wait_for_approval_unless_registration_is_open(play: Play) -> None:
    async def story(stage: Stage) -> None:
        one = accounts(stage)
        await one.register(person())
        entry = await one.register(person("bob@example.org"))
        assert (entry.standing, entry.token) == (Standing.PENDING, "")
        assert (await one.login(person("bob@example.org"))).standing is Standing.PENDING
        bob = next(user for user in await one.users() if user["email"] == "bob@example.org")

        assert await one.approve(bob["id"])

        welcome = await one.login(person("bob@example.org"))
        assert welcome.standing is Standing.WELCOME
        assert welcome.principal is not None
        assert not welcome.principal.is_admin
        opened = await accounts(stage, registration="open").register(person("eve@example.org"))
        assert opened.standing is Standing.WELCOME
        assert not await one.approve("nobody")

    play(story)


def test_a_wrong_password_and_an_unknown_address_are_one_answer(play: Play) -> None:
    async def story(stage: Stage) -> None:
        one = accounts(stage)
        await one.register(person())
        assert (await one.login(person(password="wrong horse"))).standing is Standing.WRONG
        assert (await one.login(person("nobody@example.org"))).standing is Standing.WRONG

    play(story)


@pytest.mark.holds("B-151")
def test_a_session_row_is_named_by_its_keyed_hash_and_only_that_secret_finds_it(play: Play) -> None:
    async def story(stage: Stage) -> None:
        entry = await accounts(stage).register(person())
        assert await stage.value("SELECT id FROM sessions") == keyed_hash(SECRET, entry.token)
        assert len(bytes.fromhex(entry.token)) == 32
        assert await accounts(stage).session(entry.token) is not None, (
            "a replica with the same secret honours it"
        )
        assert await accounts(stage, secret=b"another").session(entry.token) is None
        assert await accounts(stage).session(keyed_hash(SECRET, entry.token)) is None, (
            "the row's name is no token"
        )

    play(story)


def test_a_session_ends_by_logout_by_time_and_with_its_user(play: Play) -> None:
    async def story(stage: Stage) -> None:
        one = accounts(stage)
        await one.register(person())
        first, second, third = [(await one.login(person())).token for _ in range(3)]

        assert await one.logout(first)
        assert not await one.logout(first)
        assert await one.session(first) is None

        await stage.database.change(
            "UPDATE sessions SET expires_at = clock_timestamp() WHERE id = %(id)s",
            {"id": keyed_hash(SECRET, second)},
        )
        assert await one.session(second) is None, "an expired session opens nothing"
        assert await one.forget_expired() == 1

        assert await one.session(third) is not None, "the control"
        await stage.database.change("UPDATE users SET active = false")
        assert await one.session(third) is None
        assert await one.session("") is None
        assert await one.session("x" * 10_000) is None

    play(story)


@pytest.mark.parametrize(
    "body",
    [
        {"email": "nobody", "password": "correct horse"},
        {"email": "a b@example.org", "password": "correct horse"},
        {"email": "a@b\u0000.org", "password": "correct horse"},
        {"email": "x" * 300 + "@example.org", "password": "correct horse"},
        {"email": "ada@example.org", "password": "short"},
        {"email": "ada@example.org", "password": "x" * 300},
        {"email": "ada@example.org", "password": "correct horse", "name": "a\u202eb"},
        {"email": "ada@example.org", "password": "correct horse", "name": "x" * 300},
        {"email": "ada@example.org"},
    ],
)
def test_nonsense_is_refused_before_it_reaches_the_database(body: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(body), type=Credentials)


def test_a_principal_says_how_it_was_shown(play: Play) -> None:
    async def story(stage: Stage) -> None:
        entry = await accounts(stage).register(person())
        assert entry.principal is not None
        assert entry.principal.via is Via.SESSION
        assert entry.principal.may_read_fleet

    play(story)
