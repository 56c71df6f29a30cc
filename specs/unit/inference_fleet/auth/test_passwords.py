"""Password hashes, and what a stranger's name costs."""

from __future__ import annotations

import asyncio

import pytest

from inference_fleet.auth.passwords import Passwords, hash_password, verify_password


def test_the_right_password_matches_and_its_hash_tells_nothing() -> None:
    async def story() -> None:
        passwords = Passwords()
        stored = await passwords.hash("correct horse")
        assert await passwords.matches("correct horse", stored)
        assert not await passwords.matches("correct horsf", stored)
        assert not await passwords.matches("correct horse", None), "no stored hash is nobody's"
        assert "correct" not in stored
        assert await passwords.hash("correct horse") != stored, "two equal passwords look different"
        passwords.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    "damage", ["", "scrypt", "md5$1$1$1$a$b", "scrypt$x$8$1$AAAA$AAAA", "scrypt$16384$8$1$!$!"]
)
def test_a_hash_that_cannot_be_read_matches_nothing(damage: str) -> None:
    assert not verify_password("", damage)


def test_parameters_travel_with_the_hash() -> None:
    assert hash_password("correct horse").startswith("scrypt$16384$8$1$")
