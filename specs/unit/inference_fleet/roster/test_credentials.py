"""Credentials by hash, in constant time, and nobody with an empty one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from inference_fleet.roster.frontend.credentials import credential_matches

if TYPE_CHECKING:
    from specs.unit.inference_fleet.conftest import Play, Stage


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("shown", "stored", "matches"),
    [
        ("secret", sha256("secret"), True),
        ("Secret", sha256("secret"), False),
        ("", sha256(""), False),
        ("", "", False),
        ("secret", "", False),
        ("secret", None, False),
        ("no node", None, False),
        ("x" * 5000, sha256("x" * 5000), False),
        ("\udcff", sha256("secret"), False),
    ],
)
def test_only_the_credential_itself_matches(shown: str, stored: str | None, *, matches: bool) -> None:
    assert credential_matches(shown, stored) is matches, f"{shown[:10]!r} was judged otherwise"


def test_a_node_shows_its_own_credential_and_no_other(play: Play) -> None:
    async def story(stage: Stage) -> None:
        roster = stage.roster()
        node = await stage.node("worker")
        assert await roster.check_credential(node, "secret") == 1
        for shown in ("", "other", sha256("secret")):
            assert await roster.check_credential(node, shown) is None
        assert await roster.check_credential("node-nobody", "secret") is None

    play(story)


def test_a_stored_hash_of_nothing_authorises_nobody(play: Play) -> None:
    async def story(stage: Stage) -> None:
        node = await stage.node("worker")
        await stage.database.change("UPDATE nodes SET credential_sha256 = %(h)s", {"h": sha256("")})
        assert await stage.roster().check_credential(node, "") is None, "an empty credential was accepted"

    play(story)
